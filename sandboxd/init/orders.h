/** orders.h - commands that a zygote is to fork (zygotes.h): from START until they run, or are refused. A command with
 *  an order is in the table as STARTING and has no process yet. */
#pragma once

#include "sandboxd/init/command.h"
#include "sandboxd/init/zygotes.h"

/** Writes the order down in `command`, whose streams are open. Copies all descriptors. NO_CAPACITY. */
bool order_make(struct command *command, const struct zygote_wish *wish, int memory, struct error *err) MUST_USE;
/** The command has none any more, if it had one: it runs, or never will. */
void order_end(struct command *command, struct init *init);

/** Gives it to its zygote, now or when that is ready. What goes wrong the command is refused with, and freed. */
void order_give(struct command *command, struct init *init);
/** Ends it: the command is refused with that, and may be freed. */
void order_abandon(struct command *command, struct init *init, enum error_kind kind, const char *why);
/** SIGKILL abandons it, another is sent (the last one asked for) as soon as it runs. */
void order_signal(struct command *command, struct init *init, int number);

/* ---- of all commands of zygote `number` ---- */

/** It is ready: gives those that wait. */
void orders_give(struct init *init, uint8_t number);
/** It is gone: gives those it had, and those that wait, to another, or refuses them where that was done before. */
void orders_fail(struct init *init, uint8_t number, const struct error *why);
/** Refuses all of that zygote's number with `why`: another one would say the same. */
void orders_refuse(struct init *init, uint8_t number, const struct error *why);

/** Fails those without a word in time, with their zygote; tells the timer of the others. */
void orders_time_out(struct init *init, uint64_t now_boot_ns);
/** Whether one was given to the zygote in that cgroup, and waits for its word. */
bool orders_are_with(const struct init *init, uint64_t serial) MUST_USE;
