#include "sandboxd/templates/tool/build.h"

#include "sandboxd/templates/new_version.h"
#include "sandboxd/templates/tool/image.h"
#include "sandboxd/templates/tool/import_child.h"
#include "sandboxd/templates/tool/making.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PACKAGES_FILE_MAX_BYTES = 256 * 1024, ARGUMENTS_MAX = 16, ENVIRONMENT_MAX = 16 };

static const char DEBOOTSTRAP[] = "/usr/sbin/debootstrap";
static const char SCRIPTS[] = "/usr/share/debootstrap/scripts";

/* --- what may be asked for --- */

/* Debian policy 5.6.1. */
static bool is_package(const char *name, size_t length)
{
    return length >= 2 && length <= 100 && name[0] != '-' && name[0] != '+' && name[0] != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789+.-") >= length;
}

static bool is_suite(const char *suite)
{
    return suite[0] && suite[0] != '-' && strspn(suite, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(suite);
}

/* No character that a shell or a terminal would see something in. */
static bool is_mirror(const char *mirror)
{
    return (text_starts_with(mirror, "http://") || text_starts_with(mirror, "https://")) && strlen(mirror) < 200 &&
           strspn(mirror, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:/.-_~%+@[]") ==
               strlen(mirror);
}

static bool check(const struct build_options *options, struct error *err)
{
    AUTO_FREE char *script = memory_printf("%s/%s", SCRIPTS, options->suite);
    if (!is_suite(options->suite))
        return error_set(err, ERROR_INVALID, "--suite: a name of a-z 0-9 -, such as bookworm");
    if (!is_mirror(options->mirror))
        return error_set(err, ERROR_INVALID, "--mirror: a URL that begins with http:// or https://");
    if (access(DEBOOTSTRAP, X_OK) < 0)
        return error_set(err, ERROR_NOT_FOUND, "debootstrap is not installed here: apt-get install debootstrap");
    if (access(script, R_OK) < 0)
        return error_set(err, ERROR_INVALID, "debootstrap knows no suite \"%s\"; those of %s", options->suite, SCRIPTS);
    return true;
}

/* --- packages --- */

/* Appends the names in `from` to "a,b". */
static bool add_packages(char **list, size_t *count, const char *from, struct error *err)
{
    static const char GAPS[] = ", \t\r\n";
    for (const char *at = from + strspn(from, GAPS); *at; at += strspn(at, GAPS)) {
        size_t length = strcspn(at, GAPS);
        if (at[0] == '#') {
            at += strcspn(at, "\n");
            continue;
        }
        if (!is_package(at, length))
            return error_set(err, ERROR_INVALID, "\"%.*s\" is no name of a package", length < 60 ? (int)length : 60,
                             at);
        if (++*count > BUILD_PACKAGES_MAX)
            return error_set(err, ERROR_INVALID, "more than %d packages", BUILD_PACKAGES_MAX);
        char *longer = memory_printf("%s%s%.*s", *list, (*list)[0] ? "," : "", (int)length, at);
        free(*list);
        *list = longer;
        at += length;
    }
    return true;
}

static char *list_packages(const struct build_options *options, struct error *err)
{
    AUTO_FREE char *list = memory_string("");
    size_t count = 0;
    if (options->include && !add_packages(&list, &count, options->include, err))
        return NULL;
    if (options->packages_file) {
        AUTO_FREE char *text = fd_read_file(options->packages_file, PACKAGES_FILE_MAX_BYTES, NULL, err);
        if (text == NULL || !add_packages(&list, &count, text, err)) {
            error_prefix(err, "--packages %.60s", options->packages_file);
            return NULL;
        }
    }
    return TAKE(list);
}

/* --- the two stages --- */

/* What a stage executes; made before the child is. */
struct program {
    char *arguments[ARGUMENTS_MAX];
    char *environment[ENVIRONMENT_MAX];
};

static void program_done(struct program *program)
{
    for (size_t i = 0; program->arguments[i]; i++)
        free(program->arguments[i]);
    for (size_t i = 0; program->environment[i]; i++)
        free(program->environment[i]);
}
#define AUTO_PROGRAM __attribute__((cleanup(program_done))) struct program

/* container=lxc: debootstrap then takes it that devices cannot be made. */
static void set_environment(struct program *program)
{
    static const char *const FIXED[] = {
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C", "TMPDIR=/tmp", "container=lxc",
        "DEBIAN_FRONTEND=noninteractive"};
    static const char *const PROXIES[] = {"http_proxy", "https_proxy", "no_proxy"};
    size_t count = 0;
    for (size_t i = 0; i < sizeof FIXED / sizeof FIXED[0]; i++)
        program->environment[count++] = memory_string(FIXED[i]);
    for (size_t i = 0; i < sizeof PROXIES / sizeof PROXIES[0]; i++) {
        const char *value = getenv(PROXIES[i]);
        if (value)
            program->environment[count++] = memory_printf("%s=%s", PROXIES[i], value);
    }
}

/* In the child: becomes the program. */
static void execute(const struct jail_inside *inside)
{
    const struct program *program = inside->context;
    struct message message = {.type = MESSAGE_FAILED};
    execve(program->arguments[0], program->arguments, program->environment);
    error_set_errno(&message.as.failed, ERROR_INTERNAL, "execute %s", program->arguments[0]);
    message_send(inside->channel, &message);
}

static bool fetch(struct making *making, const struct build_options *options, const char *packages, struct error *err)
{
    AUTO_PROGRAM program = {{NULL}, {NULL}};
    size_t count = 0;
    program.arguments[count++] = memory_string(DEBOOTSTRAP);
    program.arguments[count++] = memory_string("--foreign");
    program.arguments[count++] = memory_string("--variant=minbase");
    program.arguments[count++] = memory_string("--force-check-gpg");
    program.arguments[count++] = memory_printf("--arch=%s", image_architecture());
    if (packages[0])
        program.arguments[count++] = memory_printf("--include=%s", packages);
    program.arguments[count++] = memory_string(options->suite);
    program.arguments[count++] = memory_string("/target");
    program.arguments[count++] = memory_string(options->mirror);
    set_environment(&program);
    const struct jail_plan plan = {.kind = JAIL_FETCH,
                                   .rootfs = making->fresh->rootfs,
                                   .file_bytes = options->limits.bytes,
                                   .work = execute,
                                   .context = &program};
    return making_execute(making, &plan, options->timeout_s, err) || error_prefix(err, "fetching %s", options->suite);
}

/* Nothing of this host stays: debootstrap copies its name and its resolvers. */
static const char CONFIGURE[] = "/debootstrap/debootstrap --second-stage || exit 1\n"
                                "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin /etc/resolv.conf\n"
                                ": >/etc/resolv.conf\n"
                                "echo sandbox >/etc/hostname\n";

static bool configure(struct making *making, const struct build_options *options, struct error *err)
{
    AUTO_PROGRAM program = {{NULL}, {NULL}};
    program.arguments[0] = memory_string("/bin/sh");
    program.arguments[1] = memory_string("-c");
    program.arguments[2] = memory_string(CONFIGURE);
    set_environment(&program);
    const struct jail_plan plan = {.kind = JAIL_CONFIGURE,
                                   .rootfs = making->fresh->rootfs,
                                   .file_bytes = options->limits.bytes,
                                   .work = execute,
                                   .context = &program};
    return making_execute(making, &plan, options->timeout_s, err) || error_prefix(err, "configuring");
}

/* --- all of it --- */

static bool survey(struct making *making, const struct build_options *options, struct message_result *result,
                   struct error *err)
{
    struct import_work work = {.archive = -1, .spool = -1, .folder = -1, .limits = options->limits};
    const struct jail_plan plan = {.kind = JAIL_PARSE,
                                   .rootfs = making->fresh->rootfs,
                                   .file_bytes = options->limits.bytes,
                                   .work = survey_child,
                                   .context = &work};
    return making_run(making, &plan, options->timeout_s, result, err);
}

bool build_run(const char *folder, const struct build_options *options, struct template *made, struct error *err)
{
    AUTO_NEW_VERSION fresh = NEW_VERSION_NONE;
    struct making making = {.fresh = &fresh, .is_quiet = options->is_quiet};
    struct message_result result;
    if (!check(options, err))
        return false;
    AUTO_FREE char *packages = list_packages(options, err);
    if (packages == NULL || !new_version_begin(folder, &fresh, err) || !fetch(&making, options, packages, err) ||
        !configure(&making, options, err) || !survey(&making, options, &result, err))
        return false;
    memcpy(result.record.digest, making.digest, sizeof making.digest);
    AUTO_FREE char *source = memory_printf("debootstrap %s %s", options->suite, options->mirror);
    return making_commit(folder, &fresh, &result, options->name, source, made, err);
}
