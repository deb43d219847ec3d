/** languages.h - what main.c chooses from. */
#pragma once

#include <stdbool.h>

/** A context; the exit status. */
int bash_context(bool is_durable); /* what ends its shell ends a run: another goes on */
int node_context(const char *language);

/** A script: arguments[0] is replaced by the interpreter's name, arguments[1] is the path.
 *  Returns the exit status when there is no interpreter. */
int bash_script(char **arguments);
int node_script(const char *language, char **arguments);

/** Becomes the Python zygote (python/zygote.py) of that kind, or, where there is no Python, tells init so. */
int python_zygote(const char *kind);
