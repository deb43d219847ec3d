/** templates.h - what / of a sandbox is made of: the templates of this node.
 *
 *  STATE/sandboxd/templates/<name> is a link to <name>-<stamp>, a *version*: a folder that holds `rootfs` (ids
 * 0..65535, no file of it set-uid or set-gid), `template`, one struct template_record, and `packages.json` for
 * scanners. A version that a sandbox, a warm one or a snapshot was made of stays until none is. "base" has a skeleton
 * as its rootfs and the host's /usr beside it. Who imports or builds writes a new version (new_version.h) and renames
 * the link: a reader sees one or the other. Everything that parses (tar, JSON, dpkg's status) is in another program,
 * parley-template (tool/), and there in a child without rights; the launcher reads the fixed record alone. */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"
#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEMPLATES_MAX         256
#define TEMPLATE_PATH_BYTES   512
#define TEMPLATE_DIGEST_BYTES 80  /* "sha256:<64 hex>" */
#define TEMPLATE_SOURCE_BYTES 256 /* "docker-archive python:3.12-slim", "debootstrap bookworm" */

enum template_kind {
    TEMPLATE_SKELETON = 1, /* rootfs at /, the host's /usr at /usr */
    TEMPLATE_WHOLE         /* rootfs at / */
};

/** The file `template`: of fixed size, checksummed, written by import and build, read by the launcher. Texts are
 *  NUL-padded. */
struct template_record {
    uint32_t magic, version; /* set by template_write */
    uint32_t kind;
    uint32_t uid, gid; /* commands run as, inside: the image's user where it is one and not root; else 1000 */
    uint32_t reserved;
    int64_t created_ms;
    uint64_t size_bytes, files;
    char name[FRONT_LAUNCHER_NAME_BYTES];
    char digest[TEMPLATE_DIGEST_BYTES]; /* of the archive's config or of the package list; "" for base */
    char source[TEMPLATE_SOURCE_BYTES];
    char workdir[FRONT_LAUNCHER_PATH_BYTES]; /* absolute, inside: where commands start */
    char env[ENV_BYTES];
    char entrypoint[1024]; /* the image's: texts each ended by NUL, ended by an empty one; shown, never run by itself */
    uint64_t checksum;     /* of all before it */
};

/** A version as the launcher has it. */
struct template
{
    char version[FRONT_LAUNCHER_NAME_BYTES]; /* "<name>-<16 hex digits>": the folder */
    char rootfs[TEMPLATE_PATH_BYTES];
    struct template_record record;
};

/* `folder` is the absolute path of STATE/sandboxd/templates in all of these. */

/** The current version of the template `name`. NOT_FOUND, INVALID when its record is damaged. */
bool templates_find(const char *folder, const char *name, struct template *found, struct error *err) MUST_USE;
/** That very version, which may not be the current one any more. NOT_FOUND, INVALID. */
bool templates_find_version(const char *folder, const char *version, struct template *found,
                            struct error *err) MUST_USE;
/** All current ones by name, at most `max`; damaged ones are left out and logged. The caller frees *list. */
size_t templates_list(const char *folder, size_t max, struct template **list);
/** Removes versions that are not current and that is_used (of the version's name) denies; and what was half-made and
 *  nobody is at work on. Out of sight at once; a process of its own takes them away. Nothing while an import commits.
 */
void templates_clean(const char *folder, bool (*is_used)(void *context, const char *version), void *context);
/** Removes the link: the template is gone, its version once nothing uses it. NOT_FOUND; FORBIDDEN for "base". */
bool templates_remove(const char *folder, const char *name, struct error *err) MUST_USE;
/** Gives the skeleton that the isolation made (base -> base-<stamp>, with `rootfs`) its record, if it has none. */
bool templates_describe_base(const char *folder, struct error *err) MUST_USE;

/** Writes folder/template: sets magic, version and checksum; the rest must be sane (template_check): INVALID. */
bool template_write(const char *folder, struct template_record *record, struct error *err) MUST_USE;
/** Whether every field is what it may be: texts ended, ids within 1..65535, workdir absolute without "..", env whole.
 *  INVALID says which is not. Not magic, version and checksum. */
bool template_check(const struct template_record *record, struct error *err) MUST_USE;
/** 1..40 of a-z 0-9 . _ -, beginning with a letter; not "auto", "snapshot", nor ended like a version's name. */
bool template_is_name(const char *text) MUST_USE;
/** Whether `text` is "<name>-<16 hex digits>"; then `name` has the name. */
bool template_is_version(const char *text, char name[static FRONT_LAUNCHER_NAME_BYTES]) MUST_USE;

/** `parley-sandboxd template COMMAND ...` (argv from COMMAND on): becomes the program parley-template that lies beside
 *  this one; returns an exit status only when it cannot. */
int templates_main(int argc, char *const argv[]) MUST_USE;
