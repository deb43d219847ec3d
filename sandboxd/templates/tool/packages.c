#include "sandboxd/templates/tool/packages.h"

#include "sandboxd/templates/tool/tree_file.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { LIST_MAX_BYTES = 64 * 1024 * 1024, ONE_MAX_BYTES = 1024 * 1024, STATUS_D_MAX = 5000 };

/* A list being read: stanzas of lines, an empty line between two. */
struct reader {
    void (*tell)(void *context, const struct message_package *package);
    void *context;
    uint32_t count;
    struct message_package package; /* as far as its stanza was read */
    bool is_installed;
};

static bool is_word(const char *text)
{
    return text[0] &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.:~_-^") == strlen(text);
}

static void end_stanza(struct reader *reader)
{
    struct message_package *package = &reader->package;
    if (reader->is_installed && is_word(package->name) && is_word(package->version) &&
        reader->count < MESSAGE_PACKAGES_MAX) {
        if (!is_word(package->architecture))
            snprintf(package->architecture, sizeof package->architecture, "all");
        reader->tell(reader->context, package);
        reader->count++;
    }
    *package = (struct message_package){0};
    reader->is_installed = true; /* unless it says otherwise */
}

/* --- the two formats --- */

static bool take_field(const char *line, const char *field, char *to, size_t size)
{
    if (!text_starts_with(line, field))
        return false;
    const char *value = line + strlen(field);
    (void)!text_copy(to, size, value + strspn(value, " \t"));
    return true;
}

static void read_dpkg_line(struct reader *reader, const char *line)
{
    struct message_package *package = &reader->package;
    char status[64] = "";
    if (take_field(line, "Package:", package->name, sizeof package->name) ||
        take_field(line, "Version:", package->version, sizeof package->version) ||
        take_field(line, "Architecture:", package->architecture, sizeof package->architecture))
        return;
    if (take_field(line, "Status:", status, sizeof status))
        reader->is_installed = strstr(status, " installed") != NULL;
}

static void read_apk_line(struct reader *reader, const char *line)
{
    struct message_package *package = &reader->package;
    (void)!(take_field(line, "P:", package->name, sizeof package->name) ||
            take_field(line, "V:", package->version, sizeof package->version) ||
            take_field(line, "A:", package->architecture, sizeof package->architecture));
}

static void read_stanzas(struct reader *reader, char *text, void (*read_line)(struct reader *, const char *line))
{
    for (char *line = text; line;) {
        char *end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        if (line[0] == '\0')
            end_stanza(reader);
        else
            read_line(reader, line);
        line = end;
    }
    end_stanza(reader);
}

/* --- where they lie --- */

static bool read_list(const struct tree *tree, const char *path, size_t max, struct reader *reader,
                      void (*read_line)(struct reader *, const char *line))
{
    size_t size = 0;
    AUTO_FREE char *text = tree_file_read(tree, path, max, &size, NULL);
    if (text == NULL)
        return false;
    reader->is_installed = true;
    read_stanzas(reader, text, read_line);
    return true;
}

/* "Distroless" images have a file a package. */
static bool read_status_d(struct tree *tree, struct reader *reader)
{
    static const char FOLDER[] = "var/lib/dpkg/status.d";
    int parent = tree_find_parent(tree, FOLDER, NULL);
    int fd = parent < 0 ? -1 : openat(parent, tree_base(FOLDER), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    int seen = 0;
    for (const struct dirent *entry = entries ? readdir(entries) : NULL; entry && seen < STATUS_D_MAX;
         entry = readdir(entries)) {
        if (entry->d_name[0] == '.' || strstr(entry->d_name, ".md5sums"))
            continue;
        AUTO_FREE char *path = memory_printf("%s/%s", FOLDER, entry->d_name);
        seen += read_list(tree, path, ONE_MAX_BYTES, reader, read_dpkg_line);
    }
    if (entries)
        closedir(entries);
    return seen > 0;
}

uint32_t packages_read(struct tree *tree, char manager[static 16],
                       void (*tell)(void *context, const struct message_package *package), void *context)
{
    struct reader reader = {.tell = tell, .context = context};
    const char *found = "";
    if (read_list(tree, "var/lib/dpkg/status", LIST_MAX_BYTES, &reader, read_dpkg_line))
        found = "dpkg";
    if (read_status_d(tree, &reader))
        found = "dpkg";
    if (found[0] == '\0' && (read_list(tree, "lib/apk/db/installed", LIST_MAX_BYTES, &reader, read_apk_line) ||
                             read_list(tree, "usr/lib/apk/db/installed", LIST_MAX_BYTES, &reader, read_apk_line)))
        found = "apk";
    snprintf(manager, 16, "%s", found);
    return reader.count;
}
