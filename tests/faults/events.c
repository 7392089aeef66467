/* Counts what a process does to the files below one directory, and lets one of these events fail.

   Loaded before libc (LD_PRELOAD), so that it sees the calls of Python, NumPy, safetensors and
   SentencePiece alike. An event is: open for writing, write, truncate, rename, link, unlink, mkdir,
   rmdir, chmod, fsync. Numbers begin at 1; before `fault_arm` nothing is counted. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NOTHING, KILL, SIGNAL, ERROR, ERROR_FROM };

static char root[PATH_MAX];
static size_t root_length;
static long count, chosen;
static int action, argument;

/* Begin to count below `directory`; at event `number` do `what` (with signal or errno `value`). */
void fault_arm(const char *directory, long number, int what, int value) {
  count = 0, chosen = number, action = what, argument = value;
  if (!realpath(directory, root)) abort();
  root_length = strlen(root);
}

long fault_count(void) { return count; }

static int below(const char *path) {
  return root_length && !strncmp(path, root, root_length) &&
         (path[root_length] == '/' || !path[root_length]);
}

static int handle_below(int handle) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
  ssize_t length = root_length ? readlink(link, path, sizeof path - 1) : -1;
  if (length < 0) return 0;
  path[length] = 0;
  return below(path);
}

static int path_below(int directory, const char *path) {
  char current[PATH_MAX];
  if (!root_length || !path) return 0;
  if (path[0] == '/') return below(path);
  if (directory != AT_FDCWD) return handle_below(directory);
  return getcwd(current, sizeof current) && below(current);
}

/* Returns whether the call must fail. What frees room is counted, and never fails. */
static int event_of(int counts, int frees) {
  if (!counts) return 0;
  long now = __sync_add_and_fetch(&count, 1);
  if (now == chosen && action == KILL) kill(getpid(), SIGKILL);
  if (now == chosen && action == SIGNAL) kill(getpid(), argument);
  if (frees) return 0;
  if ((now == chosen && action == ERROR) || (now >= chosen && action == ERROR_FROM))
    return errno = argument, 1;
  return 0;
}

static int event(int counts) { return event_of(counts, 0); }
static int freeing(int counts) { return event_of(counts, 1); }

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRITES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))

#define OPEN(name)                                                              \
  int name(const char *path, int flags, ...) {                                  \
    va_list rest;                                                               \
    va_start(rest, flags);                                                      \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;     \
    va_end(rest);                                                               \
    if (event(WRITES(flags) && path_below(AT_FDCWD, path))) return -1;          \
    return NEXT(name)(path, flags, mode);                                       \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                            \
  int name(int directory, const char *path, int flags, ...) {                   \
    va_list rest;                                                               \
    va_start(rest, flags);                                                      \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;     \
    va_end(rest);                                                               \
    if (event(WRITES(flags) && path_below(directory, path))) return -1;         \
    return NEXT(name)(directory, path, flags, mode);                            \
  }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                                             \
  FILE *name(const char *path, const char *mode) {                              \
    if (event(mode[strcspn(mode, "wa+")] && path_below(AT_FDCWD, path))) return NULL; \
    return NEXT(name)(path, mode);                                              \
  }
FOPEN(fopen)
FOPEN(fopen64)

#define ON_HANDLE(type, name, parameters, arguments)                            \
  type name parameters {                                                        \
    if (event(handle_below(handle))) return -1;                                 \
    return NEXT(name) arguments;                                                \
  }
ON_HANDLE(ssize_t, write, (int handle, const void *data, size_t size), (handle, data, size))
ON_HANDLE(ssize_t, writev, (int handle, const struct iovec *data, int size), (handle, data, size))
ON_HANDLE(ssize_t, pwrite, (int handle, const void *data, size_t size, off_t at),
          (handle, data, size, at))
ON_HANDLE(ssize_t, pwrite64, (int handle, const void *data, size_t size, off64_t at),
          (handle, data, size, at))
ON_HANDLE(int, ftruncate, (int handle, off_t size), (handle, size))
ON_HANDLE(int, ftruncate64, (int handle, off64_t size), (handle, size))
ON_HANDLE(int, fsync, (int handle), (handle))
ON_HANDLE(int, fdatasync, (int handle), (handle))
ON_HANDLE(int, fchmod, (int handle, mode_t mode), (handle, mode))

#define ON_PATH(event, type, name, directory, path, parameters, arguments)      \
  type name parameters {                                                        \
    if (event(path_below(directory, path))) return -1;                          \
    return NEXT(name) arguments;                                                \
  }
ON_PATH(event, int, rename, AT_FDCWD, to, (const char *from, const char *to), (from, to))
ON_PATH(event, int, renameat, target, to, (int source, const char *from, int target, const char *to),
        (source, from, target, to))
ON_PATH(event, int, link, AT_FDCWD, to, (const char *from, const char *to), (from, to))
ON_PATH(event, int, linkat, target, to,
        (int source, const char *from, int target, const char *to, int flags),
        (source, from, target, to, flags))
ON_PATH(event, int, symlink, AT_FDCWD, to, (const char *from, const char *to), (from, to))
ON_PATH(freeing, int, unlink, AT_FDCWD, path, (const char *path), (path))
ON_PATH(freeing, int, unlinkat, at, path, (int at, const char *path, int flags), (at, path, flags))
ON_PATH(event, int, mkdir, AT_FDCWD, path, (const char *path, mode_t mode), (path, mode))
ON_PATH(freeing, int, rmdir, AT_FDCWD, path, (const char *path), (path))
ON_PATH(freeing, int, chmod, AT_FDCWD, path, (const char *path, mode_t mode), (path, mode))
ON_PATH(event, int, truncate, AT_FDCWD, path, (const char *path, off_t size), (path, size))
