/** files_entry.h - records of a file helper as JSON text. What comes from a sandbox is of any bytes: a text that is no
 * UTF-8 is shown with U+FFFD, and exactly in a second field "<name>_b64". Pure. */
#pragma once

#include "sandboxd/sandbox/files.h"
#include "shared/base/text.h"

/** `"name":"value"`, and a comma and "name_b64" when the value is no UTF-8. */
void files_entry_text(struct text *to, const char *name, struct files_bytes value);

/** `"value"` alone, with U+FFFD for what is no UTF-8. */
void files_entry_quoted(struct text *to, struct files_bytes value);

/** The fields of an ENTRY without the braces. Its path is `path` (absolute), or below what was asked for when that is
 * NULL; what has no last component ("/", "") has no name. */
void files_entry_fields(struct text *to, const struct files_record *entry, const char *path);

/** "file", "folder" ... */
const char *files_entry_type(enum files_type type) MUST_USE;

/** The fields of a MATCH. */
void files_entry_match(struct text *to, const struct files_record *match);
