#include "sandboxd/helpers/drivers/bridge.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/program.h"
#include "shared/base/text.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { PROGRAM_MAX_BYTES = 64 * 1024 * 1024 };

/* The command's own descriptor: so it runs whatever the template holds. */
static const char ITSELF[] = "/proc/self/fd/3";
_Static_assert(DRIVER_FD == 3, "ITSELF names it");

static int loaded = -1; /* written by driver_bridge_load alone, before there are other threads */

static int seal(const char *path, struct error *err)
{
    size_t size = 0;
    AUTO_FREE char *bytes = fd_read_file(path, PROGRAM_MAX_BYTES, &size, err);
    if (bytes == NULL)
        return -1;
    AUTO_FD int sealed = fd_sealed_memfd("parley-jupyter", bytes, size, err);
    if (sealed < 0)
        return -1;
    char again[32];
    (void)snprintf(again, sizeof again, "/proc/self/fd/%d", sealed);
    int program = fchmod(sealed, 0555) == 0 ? open(again, O_RDONLY | O_CLOEXEC) : -1;
    if (program < 0)
        error_set_errno(err, ERROR_INTERNAL, "open the program read-only");
    return program;
}

bool driver_bridge_load(const char *path, struct error *err)
{
    AUTO_FREE char *found = path ? memory_string(path) : program_beside("parley-jupyter");
    loaded = seal(found, err);
    return loaded >= 0;
}

const char *driver_bridge_spec(const char *language)
{
    if (!text_starts_with(language, BRIDGE_PREFIX))
        return NULL;
    const char *spec = language + sizeof BRIDGE_PREFIX - 1;
    bool is_name = text_is_made_of(spec, BRIDGE_SPEC_BYTES - 1, "._-") && *spec != '.' && *spec != '-';
    return is_name ? spec : NULL;
}

bool driver_bridge_context(const char *language, struct driver_start *start, struct error *err)
{
    const char *spec = driver_bridge_spec(language);
    if (spec == NULL)
        return error_set(err, ERROR_INVALID, "a Jupyter language is jupyter:<kernelspec>, 1..%zu of A-Za-z0-9._-",
                         BRIDGE_SPEC_BYTES - 1);
    struct driver_start made = {.zygote = DRIVER_ZYGOTE_NONE};
    if (!text_copy(made.text, sizeof made.text, spec))
        return error_set(err, ERROR_INVALID, "the name of the kernelspec is too long");
    *start = made;
    start->arguments[0] = ITSELF;
    start->arguments[1] = start->text;
    return true;
}

void driver_bridge_list(struct driver_start *start)
{
    *start = (struct driver_start){.arguments = {ITSELF, "--list"}, .zygote = DRIVER_ZYGOTE_NONE};
}

int driver_bridge_program(struct error *err)
{
    if (loaded < 0)
        error_set(err, ERROR_INVALID,
                  "this node has no parley-jupyter (setting jupyter): no languages jupyter:<kernelspec>");
    return loaded;
}
