/** hostile_init.h - the parts of a program that plays parley-init for tests/hostile: it speaks the real messages, and
 * lies. A command's argv[0] names the attack that it begins, so that a test chooses by POST /exec; what init does
 * before there is any command is chosen by the sandbox's name. */
#pragma once

#include "sandboxd/front_files/front_files.h"
#include "sandboxd/front_init/front_init.h"

enum { MODE_BYTES = 64, HELPERS_MAX = 64 };

/** What was chosen for those that come without a command. */
struct modes {
    char helper[MODE_BYTES], helper_detail[MODE_BYTES], dial[MODE_BYTES], listeners[MODE_BYTES], driver[MODE_BYTES];
};

struct play {
    int connection; /* -1: none */
    struct modes modes;
    bool is_silent; /* nothing is answered any more */
    int helpers[HELPERS_MAX];
    unsigned strangers; /* commands that nobody asked for, so far */
};

/** Before the sandbox lives: the dialogue with the launcher, honest unless the name begins with "li-". */
void launcher_play(void);

/** A descriptor of a kind that no honest init would send: see descriptors.c. The caller closes it. Ends the program for
 * an unknown kind. */
int descriptor_make(const char *kind, int connection);

/** Any bytes with any descriptors, up to 253. False when they cannot be sent. */
bool raw_send(int socket, const void *data, size_t size, const int *fds, size_t count);

/** FI_START: argv[0] is the attack. */
void command_play(struct play *play, const struct fi_start *start, char *const *arguments);
void dial_play(struct play *play, const struct fi_dial *dial);
void listeners_play(struct play *play);
/** A packet came in from the front: a request to a file helper. False when the helper is over. */
bool helper_play(struct play *play, int socket);
/** FI_START of a context's driver. */
void driver_play(struct play *play, const struct fi_start *start);

/** A command's honest descriptors: two pipes and two memfds, then stdin's; `writes` gets the pipes' other ends. */
void streams_make(int fds[static FI_FDS], int writes[static 2]);
void started_send(int connection, const char *id, const int *fds, size_t count, bool has_stdin, bool is_terminal);
void exited_send(int connection, const char *id);
