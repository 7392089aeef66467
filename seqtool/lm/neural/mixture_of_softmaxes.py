"""A mixture of softmaxes (Yang et al. 2018, "Breaking the softmax bottleneck").

Dimensions in names: N tokens, H units, V vocabulary, K softmaxes, E width of what each reads,
M = N x K, all softmaxes of the first token first.

    p(w | h) = sum over k of prior_k(h) x softmax_k(w),   prior = softmax(P h),
    softmax_k = softmax(W latent_k + b),                  latent_k = tanh(L_k h + c_k)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from seqtool.lm.neural import cross_entropy
from seqtool.lm.neural.config import OutputConfig
from seqtool.lm.neural.data import IGNORED
from seqtool.lm.neural.output import OutputLayer, Surroundings
from seqtool.lm.neural.products import one_blas_thread, product


class MixtureOfSoftmaxes(OutputLayer):
    """Several softmaxes over the whole vocabulary, of one weight, mixed for each token anew.

    Args:
        hidden_size: H.
        vocabulary_size: V.
        num_mixtures: K.
        weight: the embedding's weight (V, E), when tied; else E is H.
        dropout: share of what each softmax reads that is dropped in training, for each token anew.
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary_size: int,
        num_mixtures: int,
        *,
        weight: Tensor | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.is_tied = weight is not None
        if weight is None:
            weight = nn.Parameter(torch.empty(vocabulary_size, hidden_size))
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))
        self.num_mixtures = num_mixtures
        self.prior = nn.Linear(hidden_size, num_mixtures, bias=False)
        self.latent = nn.Linear(hidden_size, num_mixtures * weight.shape[1])
        self._dropout = dropout

    @classmethod
    def make(cls, config: OutputConfig, around: Surroundings) -> MixtureOfSoftmaxes:
        """Build it as configured."""
        return cls(
            around.hidden_size,
            around.vocabulary_size,
            config.mixtures,
            weight=around.tied_weight,
            dropout=config.dropout_latent,
        )

    def mix(self, hidden_NH: Tensor) -> tuple[Tensor, Tensor]:
        """Return what each softmax reads, (M, E), and the log of its prior, (N, K)."""
        latent_NE = torch.tanh(self.latent(hidden_NH))
        latent_NE = functional.dropout(latent_NE, self._dropout, self.training)
        log_prior_NK = functional.log_softmax(self.prior(hidden_NH).to(self.weight.dtype), dim=1)
        latent_ME = latent_NE.reshape(-1, self.weight.shape[1])
        return latent_ME.to(self.weight.dtype), log_prior_NK

    def loss(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the mean negative log-likelihood in nats over the targets not `IGNORED`."""
        latent_ME, log_prior_NK = self.mix(hidden_NH)
        if hidden_NH.device.type == "cpu":
            half = torch.is_autocast_enabled("cpu")
            with torch.autocast("cpu", enabled=False), one_blas_thread():
                loss: Tensor = _FusedMixture.apply(  # type: ignore[no-untyped-call]
                    latent_ME,
                    log_prior_NK,
                    self.weight,
                    self.bias,
                    targets_N,
                    half,
                    torch.is_grad_enabled(),
                )
            return loss
        log_probs_N = self._mixed(latent_ME, log_prior_NK, targets_N)
        return -log_probs_N.sum() / (targets_N != IGNORED).sum().clamp(min=1)

    def log_probs(self, hidden_NH: Tensor) -> Tensor:
        """Return natural-log probabilities of every symbol, in float64, (N, V)."""
        latent_ME, log_prior_NK = self.mix(hidden_NH)
        log_probs_MV = cross_entropy.log_probs(latent_ME, self.weight, self.bias)
        log_prior_NK = functional.log_softmax(log_prior_NK.double(), dim=1)
        log_probs_NKV = log_probs_MV.view(*log_prior_NK.shape, -1)
        return torch.logsumexp(log_prior_NK[..., None] + log_probs_NKV, dim=1)

    def target_log_probs(self, hidden_NH: Tensor, targets_N: Tensor) -> Tensor:
        """Return the natural-log probability of each target, (N,), 0 for `IGNORED` ones."""
        return self._mixed(*self.mix(hidden_NH), targets_N)

    def _mixed(self, latent_ME: Tensor, log_prior_NK: Tensor, targets_N: Tensor) -> Tensor:
        log_probs_M = cross_entropy.target_log_probs(
            latent_ME,
            self.weight,
            self.bias,
            targets_N.repeat_interleave(self.num_mixtures),
        )
        mixed_N = torch.logsumexp(log_prior_NK + log_probs_M.view_as(log_prior_NK), dim=1)
        return mixed_N.masked_fill(targets_N == IGNORED, 0.0)

    def matrices(self) -> Iterator[Tensor]:
        """Yield the maps to what each softmax reads and to the prior, and the weight if its own."""
        yield from torch.split(self.latent.weight, self.weight.shape[1])
        yield self.prior.weight
        if not self.is_tied:
            yield self.weight

    def initialise_biases(self) -> None:
        """Start at zero."""
        nn.init.zeros_(self.bias)
        nn.init.zeros_(self.latent.bias)


class _FusedMixture(torch.autograd.Function):
    """The loss of a mixture, chunk by chunk, never holding all logits.

    A softmax has the share gamma_k = prior_k p_k(target) / p(target) in its token's gradient, which
    is d loss / d logits_k = gamma_k (p_k - onehot(target)) / number of targets, so all softmaxes of
    a token are computed at once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        latent_ME: Tensor,
        log_prior_NK: Tensor,
        weight_VE: Tensor,
        bias_V: Tensor,
        targets_N: Tensor,
        half: bool,
        needs_grad: bool,
    ) -> Tensor:
        """Return the mean loss in nats."""
        dtype = latent_ME.dtype
        factor = torch.bfloat16 if half else dtype
        num_mixtures = log_prior_NK.shape[1]
        is_kept_N = targets_N != IGNORED
        num_targets = max(1, int(is_kept_N.sum()))
        targets_M = targets_N.repeat_interleave(num_mixtures)
        log_prior_M = log_prior_NK.reshape(-1)
        kept_M = (is_kept_N.to(dtype) / num_targets).repeat_interleave(num_mixtures)
        factor_VE, factor_ME = weight_VE.to(factor), latent_ME.to(factor)
        log_probs_M = latent_ME.new_empty(len(latent_ME))
        shares_M1 = latent_ME.new_empty(len(latent_ME), 1)
        grad_bias = torch.zeros_like(bias_V)
        grad_latent = torch.empty_like(latent_ME)
        if needs_grad:
            grad_weight = torch.empty_like(weight_VE)
            if not len(latent_ME):
                grad_weight.zero_()
        for chunk, probs_RV in cross_entropy.in_chunks(
            len(latent_ME), len(weight_VE), factor, group=num_mixtures
        ):
            product(factor_ME[chunk], factor_VE.t(), probs_RV)

            def shares_of(near: slice, probs_R1: Tensor, start: int = chunk.start) -> Tensor:
                rows = slice(start + near.start, start + near.start + len(probs_R1))
                log_probs_R = probs_R1[:, 0].log()
                cross_entropy.make_exact(
                    log_probs_R, latent_ME[rows], weight_VE, bias_V, targets_M[rows]
                )
                joint_R = log_prior_M[rows] + log_probs_R
                gamma_R = joint_R.view(-1, num_mixtures).softmax(dim=1).view(-1)
                shares_M1[rows, 0] = gamma_R * kept_M[rows]
                return shares_M1[rows]

            log_probs_M[chunk] = cross_entropy.softmax_(
                probs_RV,
                bias_V,
                targets_M[chunk],
                shares_of if needs_grad else None,
                grad_bias,
                group=num_mixtures,
            )
            if not needs_grad:
                continue
            grads_RV = probs_RV  # they are p - onehot(target) now
            grad_latent[chunk] = product(grads_RV, factor_VE, torch.empty_like(factor_ME[chunk]))
            cross_entropy.add_weight_gradient(
                grads_RV,
                (latent_ME[chunk] * shares_M1[chunk]).to(factor),
                grad_weight,
                is_first=chunk.start == 0,
            )
        cross_entropy.make_exact(log_probs_M, latent_ME, weight_VE, bias_V, targets_M)
        if needs_grad:
            grad_latent *= shares_M1
            grad_prior = -shares_M1.view_as(log_prior_NK)
            ctx.save_for_backward(grad_latent, grad_prior, grad_weight, grad_bias)
        mixed_N = torch.logsumexp(log_prior_NK + log_probs_M.view_as(log_prior_NK), dim=1)
        return -(mixed_N * is_kept_N).sum(dtype=torch.float64).to(dtype) / num_targets

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of latents, priors, the weight and the bias."""
        grads: tuple[Tensor, ...] = ctx.saved_tensors
        if grad.item() != 1.0:  # the loss itself is nearly always what is differentiated
            grads = tuple(part * grad for part in grads)
        return *grads, None, None, None
