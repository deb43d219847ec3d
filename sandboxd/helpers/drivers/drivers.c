/* drivers.c - see drivers.h. All languages have one program, which is in this binary (CMakeLists.txt). */
#include "sandboxd/helpers/drivers/drivers.h"

#include "sandboxd/helpers/drivers/bridge.h"
#include "shared/base/fd.h"
#include "shared/base/text.h"

#include <pthread.h>
#include <string.h>

extern const char driver_host[], driver_host_end[]; /* host/main.c, which holds the texts of all languages */

/* The command's own descriptor: it runs whatever the template holds. */
#define ITSELF "/proc/self/fd/3"
_Static_assert(DRIVER_FD == 3, "ITSELF names it");

struct driver {
    const char *language;
    const char *aliases[4];
    struct driver_start context, script;
};

static const struct driver DRIVERS[] = {
    {.language = "python",
     .aliases = {"py", "python3", "ipython"},
     .context = {.arguments = {"python3", "kernel"},
                 .zygote = DRIVER_ZYGOTE_CONTEXTS,
                 .zygote_arguments = {ITSELF, "python", "zygote", "contexts"}},
     .script = {.arguments = {"python3", "script"},
                .zygote = DRIVER_ZYGOTE_SCRIPTS,
                .zygote_arguments = {ITSELF, "python", "zygote", "scripts"}}},
    {.language = "bash",
     .aliases = {"sh", "shell"},
     .context = {.arguments = {ITSELF, "bash", "kernel"}},
     .script = {.arguments = {ITSELF, "bash", "script"}}},
    {.language = "javascript",
     .aliases = {"js", "node", "nodejs"},
     .context = {.arguments = {ITSELF, "javascript", "kernel"}},
     .script = {.arguments = {ITSELF, "javascript", "script"}}},
    {.language = "typescript",
     .aliases = {"ts"},
     .context = {.arguments = {ITSELF, "typescript", "kernel"}},
     .script = {.arguments = {ITSELF, "typescript", "script"}}},
};
#define DRIVER_COUNT (sizeof DRIVERS / sizeof DRIVERS[0])

static pthread_mutex_t program_lock = PTHREAD_MUTEX_INITIALIZER;
static int program = -1;

static bool is_named(const struct driver *driver, const char *given)
{
    if (strcmp(driver->language, given) == 0)
        return true;
    for (size_t i = 0; i < sizeof driver->aliases / sizeof driver->aliases[0] && driver->aliases[i]; i++) {
        if (strcmp(driver->aliases[i], given) == 0)
            return true;
    }
    return false;
}

static const struct driver *find(const char *given, struct error *err)
{
    for (size_t i = 0; i < DRIVER_COUNT; i++) {
        if (is_named(&DRIVERS[i], given))
            return &DRIVERS[i];
    }
    error_set(err, ERROR_INVALID,
              "no language %.64s; there are python, bash, javascript, typescript and jupyter:<kernelspec>", given);
    return NULL;
}

bool driver_language(const char *given, char to[static DRIVER_NAME_BYTES], struct error *err)
{
    const struct driver *driver = NULL;
    if (driver_bridge_spec(given) == NULL && (driver = find(given, err)) == NULL)
        return false;
    return text_format(to, DRIVER_NAME_BYTES, "%s", driver ? driver->language : given) ||
           error_set(err, ERROR_INVALID, "the language's name is too long");
}

bool driver_context(const char *language, struct driver_start *start, struct error *err)
{
    if (driver_bridge_spec(language) != NULL)
        return driver_bridge_context(language, start, err);
    const struct driver *driver = find(language, err);
    if (driver == NULL)
        return false;
    *start = driver->context;
    return true;
}

bool driver_script(const char *language, struct driver_start *start, struct error *err)
{
    if (driver_bridge_spec(language) != NULL)
        return error_set(err, ERROR_INVALID, "a kernelspec has contexts, no scripts");
    const struct driver *driver = find(language, err);
    if (driver == NULL)
        return false;
    *start = driver->script;
    return true;
}

int driver_program(const char *language, struct error *err)
{
    if (driver_bridge_spec(language) != NULL)
        return driver_bridge_program(err);
    if (find(language, err) == NULL)
        return -1;
    pthread_mutex_lock(&program_lock);
    if (program < 0)
        program = fd_sealed_memfd("parley-driver", driver_host, (size_t)(driver_host_end - driver_host), err);
    int fd = program;
    pthread_mutex_unlock(&program_lock);
    return fd;
}

const char *const *driver_languages(void)
{
    static const char *const languages[] = {"python", "bash", "javascript", "typescript", NULL};
    return languages;
}
