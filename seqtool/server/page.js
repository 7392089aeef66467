
// the form above the trees

const typed = byId("typed"), text = byId("text");
const LINKED = 1500; // characters of a text that may stand in an address
const FEW = 3; // sentences that need no search

text.addEventListener("keydown", (event) => {
  // Enter may end a syllable that is being composed
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  typed.requestSubmit();
});
typed.addEventListener("submit", () => {
  typed.method = text.value.length > LINKED ? "post" : "get";
});
byId("keys").hidden = false;
byId("controls").hidden = sections.length === 0;
query.hidden = byId("help").hidden = byId("count").hidden = sections.length < FEW;
