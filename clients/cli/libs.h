/** libs.h - the libraries that this installation's programs are linked with, for `parley doctor --libs`: the list
 * against which a vulnerability's notice is read. */
#pragma once

#include "shared/base/error.h"

#include <jansson.h>

/** An array of {library, version, package, linked ("shared", "static"), programs}, sorted by library. Shared ones are
 *  those that the loader finds for each parley* program beside this one now (ld.so(8), LD_TRACE_LOADED_OBJECTS); their
 *  versions are their packages', where dpkg knows them, else those in their files' names. Static ones are as they were
 *  built. The caller decrefs. NULL: err. */
json_t *libs_list(struct error *err) MUST_USE;
