/** naming.h - names that people can say: "brisk-otter". */
#pragma once

#include "negotiator/leasing/sandbox.h"

/** A random adjective-noun; with `numbered`, and a number behind, for when many names are taken. */
void naming_pick(char to[static SANDBOX_NAME_BYTES], bool numbered);
