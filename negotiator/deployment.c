#include "negotiator/deployment.h"

#include "negotiator/leasing/principal.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPLOYMENT_KEY "meta/deployment"

void deployment_done(struct deployment *deployment)
{
    key_done(&deployment->master);
}

char *deployment_ledger_folder(const char *state)
{
    return memory_printf("%s/negotiator/ledger", state);
}

/* --- the two files --- */

static bool read_master(struct key *master, const char *path, struct error *err)
{
    size_t size = 0;
    char *bytes = fd_read_file(path, KEY_BYTES, &size, err);
    if (bytes == NULL)
        return false;
    bool whole = size == KEY_BYTES;
    if (whole)
        memcpy(master->bytes, bytes, KEY_BYTES);
    sodium_memzero(bytes, size);
    free(bytes);
    return whole || error_set(err, ERROR_INVALID, "%s must have %d bytes, it has %zu", path, KEY_BYTES, size);
}

static bool read_id(char id[static RANDOM_ID_BYTES], const char *path, struct error *err)
{
    AUTO_FREE char *text = fd_read_file(path, 64, NULL, err);
    if (text == NULL)
        return false;
    text[strcspn(text, "\n")] = '\0';
    if (random_is_id(text, "dep") && text_copy(id, RANDOM_ID_BYTES, text))
        return true;
    return error_set(err, ERROR_INVALID, "%s holds no deployment id", path);
}

/* The id first: a master key is the sign that all of it is there. */
static bool make_files(const char *master_path, const char *id_path, struct error *err)
{
    char id[RANDOM_ID_BYTES];
    AUTO_KEY master;
    random_id(id, "dep");
    key_random(&master);
    return fd_write_file(id_path, 0600, id, strlen(id), err) &&
           fd_write_file(master_path, 0600, master.bytes, KEY_BYTES, err);
}

bool deployment_open(struct deployment *deployment, const char *state, struct error *err)
{
    AUTO_FREE char *folder = memory_printf("%s/negotiator", state);
    AUTO_FREE char *master_path = memory_printf("%s/master.key", folder);
    AUTO_FREE char *id_path = memory_printf("%s/deployment", folder);
    AUTO_DEPLOYMENT opened = {.id = ""};
    if (!fd_make_folders(state, 0711, err) || !fd_make_folders(folder, 0700, err))
        return false;
    /* Two first starts may meet here. */
    AUTO_FD int lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0 || flock(lock, LOCK_EX) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "lock %s", folder);
    if (access(master_path, F_OK) != 0 && !make_files(master_path, id_path, err))
        return false;
    if (!read_master(&opened.master, master_path, err) || !read_id(opened.id, id_path, err))
        return false;
    *deployment = opened;
    return true;
}

/* --- the first rules --- */

struct counting {
    size_t count;
};

static bool count_one(void *cookie, const char *key UNUSED, const struct kv_value *value UNUSED)
{
    ((struct counting *)cookie)->count++;
    return false;
}

static bool check_owner(const struct deployment *deployment, struct kv *kv, struct kv_change *change, struct error *err)
{
    AUTO_KV_VALUE value = {0};
    if (!kv_get(kv, DEPLOYMENT_KEY, &value, err))
        return false;
    if (value.revision == 0)
        kv_change_put(change, DEPLOYMENT_KEY, deployment->id, strlen(deployment->id));
    else if (!text_equal(value.data, deployment->id))
        return error_set(err, ERROR_CONFLICT, "the ledger belongs to deployment %s, the master key to %s", value.data,
                         deployment->id);
    return true;
}

/* A start that ended between the file and the ledger left a key that nobody knows yet: it is taken. */
static bool get_admin_key(char key[static API_KEY_BYTES], const char *path, struct error *err)
{
    AUTO_FREE char *text = fd_read_file(path, 256, NULL, NULL);
    if (text) {
        text[strcspn(text, "\n")] = '\0';
        bool good = principal_is_api_key(text) && text_copy(key, API_KEY_BYTES, text);
        sodium_memzero(text, strlen(text));
        if (good)
            return true;
    }
    principal_new_api_key(key);
    char line[API_KEY_BYTES + 1];
    int length = snprintf(line, sizeof line, "%s\n", key);
    bool written = fd_write_file(path, 0600, line, (size_t)length, err);
    sodium_memzero(line, sizeof line);
    return written;
}

static void print_once(const char *key)
{
    printf("admin key (shown once): %s\n", key);
    fflush(stdout);
}

static bool apply(struct kv *kv, const struct kv_change *change, struct error *err)
{
    if (!kv_batch_begin(kv, err))
        return false;
    enum kv_outcome outcome = kv_apply(kv, change, err);
    if (!kv_batch_end(kv, err))
        return false;
    return outcome == KV_APPLIED || (outcome == KV_FAILED ? false : error_set(err, ERROR_CONFLICT, "the ledger moved"));
}

bool deployment_first_rules(const struct deployment *deployment, const char *state, struct kv *kv, struct error *err)
{
    AUTO(kv_change) *change = kv_change_new();
    struct counting keys = {0};
    char key[API_KEY_BYTES] = "";
    if (!check_owner(deployment, kv, change, err) || !kv_range(kv, "apikey/", NULL, 1, count_one, &keys, err))
        return false;
    if (keys.count == 0) {
        AUTO_FREE char *path = memory_printf("%s/admin.key", state);
        struct principal admin = {.name = "admin", .role = ROLE_ADMIN};
        if (!get_admin_key(key, path, err))
            return false;
        principal_add_key(change, &deployment->master, key, &admin, clock_wall_ms());
    }
    bool applied = apply(kv, change, err);
    if (applied && key[0])
        print_once(key);
    sodium_memzero(key, sizeof key);
    return applied;
}
