/* main.c - parley-jupyter: speaks to a Jupyter kernel of a template on behalf of the front. A static program, for it
 * must run whatever the template's libc is. */
#include "sandboxd/helpers/drivers/drivers.h"
#include "sandboxd/helpers/jupyter/bridge.h"
#include "sandboxd/helpers/jupyter/frames.h"
#include "shared/base/text.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>

static const char USAGE[] =
    "usage: parley-jupyter KERNELSPEC [TITLE] | --list | --help | --version\n"
    "Starts the kernel of a kernelspec; takes runs as lines of JSON from stdin and writes frames to stdout\n"
    "(sandboxd/helpers/drivers/DESIGN.md). TITLE is for who looks at processes. --list writes the kernelspecs that "
    "are\n"
    "found, as JSON.\n"
    "They are looked for in $JUPYTER_PATH, $JUPYTER_DATA_DIR or ~/.local/share/jupyter, $VIRTUAL_ENV, $CONDA_PREFIX,\n"
    "/opt/*/share/jupyter, /usr/local/share/jupyter and /usr/share/jupyter, each with kernels/NAME/kernel.json.\n";

static int list(void)
{
    json_t *all = kernelspec_list();
    bool written = json_dumpf(all, stdout, JSON_INDENT(1)) == 0 && putchar('\n') != EOF && fflush(stdout) == 0;
    json_decref(all);
    return written ? 0 : 1;
}

static int serve(const char *name)
{
    struct error err = {0};
    AUTO(kernelspec) *spec = kernelspec_find(name, &err);
    if (spec)
        return bridge_run(spec, STDIN_FILENO, STDOUT_FILENO);
    struct frames frames = {.fd = STDOUT_FILENO};
    frames_failed(&frames, err.message);
    return 1;
}

int main(int argc, char *argv[])
{
    (void)fcntl(DRIVER_FD, F_SETFD, FD_CLOEXEC); /* this program itself, where it came by descriptor */
    if (argc < 2 || argc > 3 || sodium_init() < 0) {
        (void)fputs(USAGE, stderr);
        return 2;
    }
    if (text_equal(argv[1], "--list"))
        return list();
    if (text_equal(argv[1], "--version"))
        return printf("parley-jupyter %s\n", PARLEY_VERSION) > 0 ? 0 : 1;
    if (text_equal(argv[1], "--help"))
        return fputs(USAGE, stdout) >= 0 ? 0 : 1;
    return serve(argv[1]);
}
