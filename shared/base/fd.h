/** fd.h - files and descriptors: whole reads and writes, atomic replacement, descriptors over a socket. All
 *  descriptors made here are O_CLOEXEC. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/** Writes all `size` bytes to a blocking descriptor, through EINTR. ERROR_INTERNAL, or ERROR_DISK_FULL on
 * ENOSPC/EDQUOT. */
bool fd_write_all(int fd, const void *data, size_t size, struct error *err) MUST_USE;

/** Reads exactly `size` bytes; an early end is ERROR_INVALID. */
bool fd_read_exact(int fd, void *data, size_t size, struct error *err) MUST_USE;

/** The whole of a regular file of at most `max` bytes, NUL-terminated; the caller frees. ERROR_NOT_FOUND,
 *  ERROR_TOO_LARGE, ERROR_INVALID (not a regular file), ERROR_INTERNAL. `size` may be NULL. */
char *fd_read_file(const char *path, size_t max, size_t *size, struct error *err) MUST_USE;

/** Writes `path` by a temporary file beside it, fsync, rename, fsync of the folder; `mode` as chmod. */
bool fd_write_file(const char *path, mode_t mode, const void *data, size_t size, struct error *err) MUST_USE;

/** mkdir -p: missing folders get `mode`; one that is there is left as it is. */
bool fd_make_folders(const char *path, mode_t mode, struct error *err) MUST_USE;

/** rm -r below and including `path`, never following links; a missing one is fine. */
bool fd_remove_tree(const char *path, struct error *err) MUST_USE;

bool fd_set_nonblocking(int fd, struct error *err) MUST_USE;

/** A sealed memfd (no write, shrink, grow) holding `data`, read position 0; -1 on failure (memfd_create(2)). */
int fd_sealed_memfd(const char *name, const void *data, size_t size, struct error *err) MUST_USE;

/** Whether this kernel makes holes in a memfd (fallocate(2)): gVisor does not. Found out once. */
bool fd_can_punch(void) MUST_USE;

/** Gives back what a memfd of `length` bytes holds before `from`: by a hole, or, where there are none, by cutting it to
 *  nothing and writing the rest anew, which nobody may read or write meanwhile. Reads there give zeros afterwards. The
 *  position stays. False when it cannot be done: sealed, or no memory. */
bool fd_drop_front(int memory, uint64_t from, uint64_t length);

#define FD_MESSAGE_FDS 16 /* descriptors one message may carry */

/** One message with up to FD_MESSAGE_FDS descriptors over a SOCK_SEQPACKET socket (unix(7)). MSG_NOSIGNAL. false with
 *  system_errno EAGAIN when a non-blocking socket is full. The descriptors stay the caller's. */
bool fd_send_message(int socket, const void *data, size_t size, const int *fds, size_t fd_count,
                     struct error *err) MUST_USE;

/** Receives one message. Returns its size, 0 at the end of the stream, -1 on failure (system_errno EAGAIN: none there).
 *  `fds` gets up to FD_MESSAGE_FDS descriptors (O_CLOEXEC, now the caller's), *fd_count says how many. A message cut
 *  short or with too many descriptors is ERROR_INVALID, its descriptors dropped (fd_drop). */
ssize_t fd_receive_message(int socket, void *data, size_t size, int fds[static FD_MESSAGE_FDS], size_t *fd_count,
                           struct error *err) MUST_USE;

/** Closes a descriptor that came from somebody who is not trusted, without waiting: close(2) of a socket waits as long
 * as its SO_LINGER says, also when it does not block, and closing a UNIX socket closes what lies in it unread. -1 is
 *  allowed. What a TCP connection still had to send is given up. */
void fd_drop(int fd);
void fd_drop_all(const int *fds, size_t count);

/** The same, before the close, of a connection whose last bytes are to arrive; of what is no socket: nothing. */
void fd_disarm(int fd);

/** Ends a UNIX socket over which somebody untrusted sends messages, and drops the descriptors of those that were not
 *  received, which closing it would close in our name. Everybody who has this end of it finds it ended. */
void fd_empty(int socket);

/** Before the close of a connection that somebody untrusted made, whatever its family: fd_empty of a UNIX socket,
 *  fd_disarm of all others. What was sent arrives. */
void fd_hang_up(int fd);

/** recv(2) of a stream, without waiting: -1 with errno (EAGAIN: nothing there). Descriptors that came over it, which
 *  recv would close in our name, are dropped. */
ssize_t fd_receive(int socket, void *data, size_t size);
