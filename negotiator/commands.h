/** commands.h - the commands of parley-negotiator: each gets the words behind its name and returns the exit status. */
#pragma once

/** Serves until SIGTERM or SIGINT. */
int serve_main(int argc, char *argv[]);
/** `audit verify`. */
int audit_main(int argc, char *argv[]);
