/* drivers.c - see drivers.h. The texts are in the binary (CMakeLists.txt); a memfd of each is made when first asked for. */
#include "sandboxd/helpers/drivers/drivers.h"

#include "sandboxd/helpers/drivers/bridge.h"
#include "shared/base/fd.h"
#include "shared/base/text.h"

#include <pthread.h>
#include <string.h>

extern const char driver_python[], driver_python_end[];

/* The interpreter that a plain `python3` would be. It reads its program without moving the descriptor's position, which
 * all that were started from this memfd share. */
#define FIND_PYTHON                                                                                                    \
    "for python in python3 /usr/local/bin/python3 /usr/bin/python3; do "                                               \
    "command -v \"$python\" >/dev/null 2>&1 && exec \"$python\" -c \"$0\" \"$@\"; done; "                              \
    "echo '{\"failed\":{\"message\":\"no python3 in this template\"}}'; exit 1"
#define READ_PROGRAM "import os;exec(compile(os.pread(3,os.fstat(3).st_size,0),'<parley>','exec'))"

struct driver {
    const char *language;
    const char *aliases[4];
    struct driver_start context, script;
    const char *text, *end;
};

static const struct driver DRIVERS[] = {
    {.language = "python",
     .aliases = {"py", "python3", "ipython"},
     .context = {.arguments = {"python3", "kernel"},
                 .zygote = DRIVER_ZYGOTE_CONTEXTS,
                 .zygote_arguments = {"/bin/sh", "-c", FIND_PYTHON, READ_PROGRAM, "zygote", "contexts"}},
     .script = {.arguments = {"python3", "script"},
                .zygote = DRIVER_ZYGOTE_SCRIPTS,
                .zygote_arguments = {"/bin/sh", "-c", FIND_PYTHON, READ_PROGRAM, "zygote", "scripts"}},
     .text = driver_python,
     .end = driver_python_end},
};
#define DRIVER_COUNT (sizeof DRIVERS / sizeof DRIVERS[0])

static pthread_mutex_t programs_lock = PTHREAD_MUTEX_INITIALIZER;
static int programs[DRIVER_COUNT]; /* descriptor + 1; 0: not made yet */

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
    const struct driver *driver = find(language, err);
    if (driver == NULL)
        return -1;
    int *held = &programs[driver - DRIVERS];
    pthread_mutex_lock(&programs_lock);
    if (*held == 0)
        *held = fd_sealed_memfd("driver", driver->text, (size_t)(driver->end - driver->text), err) + 1;
    int fd = *held - 1;
    pthread_mutex_unlock(&programs_lock);
    return fd;
}

const char *const *driver_languages(void)
{
    static const char *const languages[] = {"python", NULL};
    return languages;
}
