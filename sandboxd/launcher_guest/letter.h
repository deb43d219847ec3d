/** letter.h - what a guest is told once, when it starts: which sandbox it is and how to know its tokens. One JSON
 *  object, made on the outside and read by `parley-sandboxd --guest` (guest/guest.h); both ends stand here.
 *
 *  {"sandbox": "sbx_...",            required
 *   "root": "<base64url, 32 bytes>", required: the key its tokens are made of. Behind a node's front: key_guest_root
 *   "issuer": "...",                 required: the deployment that tokens must be of
 *   "epoch": 1,                      the lowest key epoch in force, from 1
 *   "isolation": "gvisor",           gvisor, microvm or direct: what stands around the guest; required
 *   "hostname": "...",               [a-z0-9-]; "" or absent: the guest leaves the machine's as it is
 *   "expires": 1767225600,           UTC s, the hard deadline; absent: none
 *   "uid": 1000, "gid": 1000,        of commands; 1..65534
 *   "open_files": 65536,             RLIMIT_NOFILE of commands, 16..1048576
 *   "commands": 1000,                at once, 1..1000
 *   "output_bytes": 16777216,        of output kept for all commands, 64 KiB..1 GiB
 *   "template": "base",              told to who asks; [A-Za-z0-9._-]
 *   "workdir": "/workspace",         where commands start
 *   "env": {"NAME": "value"}}        variables of every command
 *
 *  A name that is not above is an error that says so. It holds a key: it goes through a descriptor, never through an
 *  argument, a variable or a file that somebody else may read. */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"

#define LETTER_BYTES_MAX 65536

struct letter {
    char sandbox[FRONT_LAUNCHER_ID_BYTES];
    struct key root;
    char issuer[FRONT_LAUNCHER_NAME_BYTES];
    char isolation[FRONT_LAUNCHER_NAME_BYTES];
    char hostname[FRONT_LAUNCHER_NAME_BYTES]; /* "": left alone */
    char template_name[FRONT_LAUNCHER_NAME_BYTES];
    char workdir[FRONT_LAUNCHER_PATH_BYTES];
    char env[ENV_BYTES];
    int64_t expires_s; /* UTC; 0: never */
    uint32_t epoch, uid, gid, open_files, commands;
    uint64_t output_bytes;
};

/** What a letter says that says nothing: epoch 1, uid and gid 1000, workdir "/", limits as above. Texts are "". */
void letter_init(struct letter *letter);

/** `text` need not end in NUL. ERROR_INVALID names the field and what is allowed; then *letter is untouched. */
bool letter_parse(const char *text, size_t size, struct letter *letter, struct error *err) MUST_USE;

/** As one line of JSON, which letter_parse takes back; the caller wipes it and frees it. NULL: ERROR_INVALID. */
char *letter_format(const struct letter *letter, struct error *err) MUST_USE;

/** Wipes it. */
void letter_done(struct letter *letter);
#define AUTO_LETTER __attribute__((cleanup(letter_done))) struct letter

/** Reads one from `fd` until its end (a pipe, a file), or one packet (SOCK_SEQPACKET, SOCK_DGRAM; what comes with it or
 *  behind it is left), or, of a stream socket, up to its first newline. The descriptor stays open. ERROR_INVALID,
 *  ERROR_TOO_LARGE. */
bool letter_read(int fd, struct letter *letter, struct error *err) MUST_USE;
