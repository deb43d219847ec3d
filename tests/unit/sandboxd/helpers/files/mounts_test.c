/* mounts_test.c - the same on an overlay, as a sandbox's root is one, and across mounts: moves become copies, removal
 * stays where it is. Needs root. */
#include "tests/unit/sandboxd/helpers/files/change_rig.h"

#include <sched.h>
#include <sys/mount.h>

static bool enter_namespace(void)
{
    return geteuid() == 0 && unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static bool mount_at(struct rig *rig, const char *path, const char *type, const char *options)
{
    char to[128];
    (void)snprintf(to, sizeof to, "%s/%s", rig->folder, path);
    return mount(type, to, type, 0, options) == 0;
}

static void unmount_at(struct rig *rig, const char *path)
{
    char to[128];
    (void)snprintf(to, sizeof to, "%s/%s", rig->folder, path);
    CHECK(umount2(to, MNT_DETACH) == 0);
}

static struct files_record ask_move(struct rig *rig, const char *path, const char *to, uint32_t flags)
{
    struct files_request request = rig_request(FILES_MOVE, "", path);
    request.to_path = to;
    request.flags = flags;
    return rig_end(rig, &request);
}

static struct files_record ask_remove(struct rig *rig, const char *path)
{
    struct files_request request = rig_request(FILES_REMOVE, "", path);
    request.flags = FILES_RECURSIVE;
    return rig_end(rig, &request);
}

static void test_across(void)
{
    struct rig rig;
    rig_open(&rig);
    rig_folder(&rig, "other");
    CHECK(mount_at(&rig, "other", "tmpfs", NULL));
    rig_folder(&rig, "tree");
    rig_folder(&rig, "tree/in");
    rig_file(&rig, "tree/in/file", "moved");
    struct files_record end = ask_move(&rig, "/tree", "/other/tree", 0);
    CHECK(end.kind == FILES_DONE);
    CHECK_FILE(&rig, "other/tree/in/file", "moved");
    CHECK(rig_stat(&rig, "", "/tree", 0).kind == FILES_ERROR);
    end = ask_move(&rig, "/other/tree/in/file", "/file", 0);
    CHECK(end.kind == FILES_DONE);
    CHECK_FILE(&rig, "file", "moved");
    rig_file(&rig, "other/file", "other");
    end = ask_move(&rig, "/other/file", "/file", 0);
    check_error(&end, ERROR_CONFLICT, "there");
    CHECK_FILE(&rig, "file", "moved");
    end = ask_move(&rig, "/other/file", "/file", FILES_OVERWRITE);
    CHECK(end.kind == FILES_DONE);
    CHECK_FILE(&rig, "file", "other");
    /* What is mounted below is not emptied. */
    rig_folder(&rig, "around");
    rig_folder(&rig, "around/mount");
    CHECK(mount_at(&rig, "around/mount", "tmpfs", NULL));
    rig_file(&rig, "around/mount/file", "stays");
    end = ask_remove(&rig, "/around");
    check_error(&end, ERROR_CONFLICT, "");
    CHECK_FILE(&rig, "around/mount/file", "stays");
    unmount_at(&rig, "around/mount");
    unmount_at(&rig, "other");
    rig_close(&rig);
}

static void test_overlay(void)
{
    struct rig rig;
    char options[512];
    struct stat status;
    rig_open(&rig);
    static const char *const folders[] = {"lower", "lower/tree", "lower/tree/in", "upper", "work", "root"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        rig_folder(&rig, folders[i]);
    rig_file(&rig, "lower/file", "lower");
    rig_file(&rig, "lower/tree/in/file", "below");
    CHECK(fchmodat(rig.root, "lower/file", 0755, 0) == 0);
    (void)snprintf(options, sizeof options, "lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", rig.folder,
                   rig.folder, rig.folder);
    if (!mount_at(&rig, "root", "overlay", options)) {
        rig_close(&rig);
        check_skip("no overlay here");
    }
    struct files_record end = rig_put(&rig, "/root", "/root/file", FILES_IF_ANY, "upper");
    CHECK(end.kind == FILES_DONE && end.count == 0);
    CHECK_FILE(&rig, "root/file", "upper");
    CHECK_FILE(&rig, "lower/file", "lower");
    CHECK(fstatat(rig.root, "root/file", &status, 0) == 0 && (status.st_mode & 0777) == 0755);
    end = rig_put(&rig, "/root", "/root/tree/in/new", FILES_IF_NONE, "new");
    CHECK(end.kind == FILES_DONE && end.count == 1);
    AUTO_FREE char *text = rig_read_text(&rig, "/root", "/root/tree/in/file");
    CHECK_TEXT(text, "below");
    end = ask_move(&rig, "/root/tree", "/root/moved", 0);
    CHECK(end.kind == FILES_DONE);
    CHECK_FILE(&rig, "root/moved/in/file", "below");
    CHECK_FILE(&rig, "root/moved/in/new", "new");
    CHECK(rig_count(&rig, "root") == 2);
    end = ask_remove(&rig, "/root/moved");
    CHECK(end.kind == FILES_DONE && rig_count(&rig, "root") == 1);
    CHECK_FILE(&rig, "lower/tree/in/file", "below");
    unmount_at(&rig, "root");
    rig_close(&rig);
}

int main(void)
{
    if (!enter_namespace())
        check_skip("no right to mount here");
    test_across();
    test_overlay();
    return check_done();
}
