/** terminal.h - the front's end of a command's terminal. Bytes move by splice alone, through a pipe each way, because
 *  nothing splices between a terminal and a memfd: master -> pipe -> stdout's memfd, stdin's memfd -> pipe -> master.
 * init keeps the pipes too, so what is in them when this front is killed is moved on by the next. Belongs to one loop.
 */
#pragma once

#include "sandboxd/front_init/front_init.h"
#include "sandboxd/sandbox/input.h"
#include "sandboxd/sandbox/output.h"
#include "shared/http/loop.h"

struct terminal;

/** Takes the descriptors (but those of the memories) out of `fds`, in the order of enum front_init_terminal_fd; they
 * come from inside a sandbox: ERROR_INVALID unless they are a pseudo-terminal's master and two pipes. */
struct terminal *terminal_new(struct loop *loop, int fds[FI_TERMINAL_FDS], struct error *err) MUST_USE;
/** NULL is allowed. */
void terminal_free(struct terminal *terminal);
DEFINE_AUTO(terminal)

#define TERMINAL_DESCRIPTORS 5 /* that one holds */

/** The master, to wait for. */
struct loop_watch *terminal_watch(struct terminal *terminal) MUST_USE;
/** Readable when something is left in the pipe to stdout's memory, of which the master tells nothing. */
struct loop_watch *terminal_watch_left(struct terminal *terminal) MUST_USE;

/** As output_pump, first what is in the pipe: from there and from the master. OUTPUT_END: no program has the terminal
 * open any more. */
enum output_pumped terminal_pump(struct terminal *terminal, struct output *output, uint64_t limit,
                                 size_t budget) MUST_USE;

/** As input_move, first what is in the pipe. INPUT_EMPTY: all is in the terminal. INPUT_BROKEN: terminal_pump tells the
 *  end. */
enum input_moved terminal_feed(struct terminal *terminal, struct input *input, size_t budget) MUST_USE;

/** For input_punch: the pipe that stdin's memory goes into. */
int terminal_input_pipe(const struct terminal *terminal) MUST_USE;

/** The programs in the foreground get SIGWINCH. ERROR_INTERNAL. */
bool terminal_resize(struct terminal *terminal, unsigned columns, unsigned rows, struct error *err) MUST_USE;
/** Untouched when it cannot be told. */
void terminal_size(const struct terminal *terminal, unsigned *columns, unsigned *rows);

/** SIGINT, SIGQUIT or SIGTSTP to the foreground group, as the keys would; false for any other, or without such a group.
 */
bool terminal_signal(struct terminal *terminal, int number) MUST_USE;

/** The character that ends input (VEOF, as set by the programs now; 4 when they have none). */
char terminal_end_character(const struct terminal *terminal) MUST_USE;
