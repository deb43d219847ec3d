/* What an import reads: byte 0 says whether the rest is an archive of an image, a layer's tar, a list of packages or
 * accounts. Written into a folder that is emptied each time; whatever it is, nothing beside that folder appears. */
#include "sandboxd/templates/tool/accounts.h"
#include "sandboxd/templates/tool/image.h"
#include "sandboxd/templates/tool/layer.h"
#include "sandboxd/templates/tool/packages.h"
#include "sandboxd/templates/tool/settle.h"
#include "sandboxd/templates/tool/tree_file.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char above[] = "/dev/shm/parley-templates-fuzz-XXXXXX";
static char *root_path, *canary;

static void end(void)
{
    (void)!fd_remove_tree(above, NULL);
}

static void start(void)
{
    if (root_path)
        return;
    if (mkdtemp(above) == NULL || atexit(end) != 0)
        abort();
    root_path = memory_printf("%s/root", above);
    canary = memory_printf("%s/canary", above);
    if (mkdir(canary, 0700) < 0)
        abort();
}

/* An empty tree. */
static int open_root(void)
{
    if (!fd_remove_tree(root_path, NULL) || mkdir(root_path, 0755) < 0)
        abort();
    int fd = open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        abort();
    return fd;
}

/* Two links: the root and the canary; nothing else may have come to be beside the root. */
static void check_outside(void)
{
    struct stat status;
    if (stat(above, &status) < 0 || status.st_nlink != 4 || stat(canary, &status) < 0 ||
        status.st_mode != (S_IFDIR | 0700))
        abort();
}

static int file_of(const uint8_t *data, size_t size)
{
    int fd = memfd_create("archive", MFD_CLOEXEC);
    if (fd < 0 || !fd_write_all(fd, data, size, NULL))
        abort();
    return fd;
}

static void apply(struct tree *tree, int file, int spool)
{
    AUTO_IMAGE image = {.layer_count = 0};
    AUTO(source) *source = source_open_tar(file, spool, 1 << 20, NULL);
    struct template_record record = {.kind = TEMPLATE_WHOLE};
    char user[IMAGE_USER_BYTES];
    uint32_t left_out = 0;
    if (source == NULL || !image_read(&image, source, NULL) || !image_describe(&image, &record, user, &left_out, NULL))
        return;
    for (size_t i = 0; i < image.layer_count; i++) {
        AUTO_BLOB blob = BLOB_NONE;
        struct blob_facts facts;
        if (!blob_open(&blob, source, image.layers[i].member, 1 << 20, NULL) || !layer_apply(tree, blob.tar, NULL) ||
            !blob_finish(&blob, &facts, NULL))
            return;
    }
    if (settle(tree, user, &record, NULL) && settle_survey(tree, &record, NULL)) {
        snprintf(record.name, sizeof record.name, "fuzzed");
        if (!template_check(&record, NULL))
            abort();
    }
}

static void apply_archive(struct tree *tree, const uint8_t *data, size_t size)
{
    AUTO_FD int file = file_of(data, size);
    AUTO_FD int spool = file_of(data, 0);
    apply(tree, file, spool);
}

static void apply_layer(struct tree *tree, const uint8_t *data, size_t size)
{
    for (int again = 0; again < 2; again++) { /* over itself too */
        struct archive *tar = archive_read_new();
        archive_read_support_format_tar(tar);
        if (archive_read_open_memory(tar, data, size) == ARCHIVE_OK)
            (void)!layer_apply(tree, tar, NULL);
        archive_read_free(tar);
    }
    struct template_record record = {.kind = TEMPLATE_WHOLE, .workdir = "/srv/dir"};
    if (settle(tree, "", &record, NULL))
        (void)!settle_survey(tree, &record, NULL);
}

static void check_package(void *context, const struct message_package *package)
{
    struct message message = {.type = MESSAGE_PACKAGE, .as.package = *package};
    (void)context;
    if (!message_check(&message, NULL))
        abort();
}

static void read_texts(struct tree *tree, const uint8_t *data, size_t size)
{
    AUTO_FREE char *text = memory_copy(data, size);
    char manager[16];
    uint32_t uid = 0;
    uint32_t gid = 0;
    static const char *const PATHS[] = {"etc/passwd", "etc/group", "var/lib/dpkg/status", "lib/apk/db/installed"};
    for (size_t i = 0; i < 4; i++) {
        if (i != (data[0] & 1U) + 2 &&
            (tree_parent(tree, PATHS[i], NULL) < 0 || !tree_file_append(tree, PATHS[i], text, NULL)))
            abort();
    }
    (void)packages_read(tree, manager, check_package, NULL);
    if (accounts_find(tree, text, &uid, &gid, NULL) && (uid == 0 || gid == 0 || uid > 65535 || gid > 65535))
        abort();
    (void)!accounts_ensure(tree, 1000, 1000, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tree_limits LIMITS = {.bytes = 1 << 20, .entries = 300};
    if (size < 2)
        return 0;
    start();
    AUTO_FD int root = open_root();
    AUTO_TREE tree;
    tree_init(&tree, root, &LIMITS);
    if (data[0] % 4 == 0)
        apply_archive(&tree, data + 1, size - 1);
    else if (data[0] % 4 == 1 || data[0] % 4 == 2)
        apply_layer(&tree, data + 1, size - 1);
    else
        read_texts(&tree, data + 1, size - 1);
    check_outside();
    return 0;
}
