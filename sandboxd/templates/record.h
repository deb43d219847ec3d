/** record.h - reading the file `template` of a version; writing it is templates.h's. */
#pragma once

#include "sandboxd/templates/templates.h"

/** Reads and checks it. NOT_FOUND; INVALID when it is not whole. */
bool template_record_read(const char *path, struct template_record *record, struct error *err) MUST_USE;
