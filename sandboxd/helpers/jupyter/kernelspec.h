/** kernelspec.h - the kernels of a template: folders kernels/<name> with a kernel.json, found where Jupyter looks for
 * them (jupyter-client.readthedocs.io, "Making kernels for Jupyter"). */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>

#define KERNELSPEC_NAME_BYTES 55
#define KERNELSPEC_FILE_MAX   (1024 * 1024)
#define KERNELSPECS_MAX       256

struct kernelspec {
    char *name;
    char *folder; /* {resource_dir} */
    json_t *spec; /* the whole of kernel.json: an object with argv, an array of at least one string */
};

/** The first of that name; where there is none, of that language (in any case). NOT_FOUND lists those there are;
 * INVALID: its kernel.json is none. The caller owns it. */
struct kernelspec *kernelspec_find(const char *name, struct error *err) MUST_USE;
void kernelspec_free(struct kernelspec *spec);
DEFINE_AUTO(kernelspec)

/** {"kernelspecs":[{"name","display_name","language","resource_dir"}..]}, in the order in which they are found; those
 *  that cannot be read are left out. The caller decrefs. */
json_t *kernelspec_list(void) MUST_USE;

/** Its display_name, else its name. Borrowed. */
const char *kernelspec_title(const struct kernelspec *spec) MUST_USE;

/** Whether it is interrupted by a message rather than by SIGINT. */
bool kernelspec_interrupts_by_message(const struct kernelspec *spec) MUST_USE;

/** Whether its metadata says {"parley":{"transport":"tcp"}}. */
bool kernelspec_wants_tcp(const struct kernelspec *spec) MUST_USE;

/** The command line with {connection_file}, {resource_dir} and {prefix} put in; NULL-ended, owned, as is each text. */
char **kernelspec_arguments(const struct kernelspec *spec, const char *connection_file) MUST_USE;
void kernelspec_arguments_free(char **arguments);

/** The spec's variables set in this process's environment, ${NAME} in them put in (of those that are there). */
void kernelspec_set_environment(const struct kernelspec *spec);
