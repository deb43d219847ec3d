#include "negotiator/ledger/audit.h"
#include "negotiator/commands.h"
#include "negotiator/deployment.h"
#include "shared/base/config.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char HELP[] = "usage: parley-negotiator audit verify [--state DIR]\n\n"
                           "Proves that no record inside the audit chain was changed or removed, and prints its head:\n"
                           "compare it with one kept elsewhere to prove the tail. The negotiator must not run.\n\n";

struct audit_settings {
    char *state;
};

static const struct config_row ROWS[] = {
    {"state", CONFIG_TEXT, offsetof(struct audit_settings, state), NULL, 0, 0, "folder of all state"}};

enum { MAP_BYTES = 1 << 30 };

static bool verify(int argc, char *argv[], struct error *err)
{
    struct audit_settings settings = {0};
    AUTO_FREE char *state = config_state_folder(argc, argv);
    AUTO_FREE char *folder = deployment_ledger_folder(state);
    bool read = config_load(&settings, ROWS, 1, NULL, NULL, argc, argv, err);
    config_done(&settings, ROWS, 1);
    if (!read)
        return false;
    if (access(folder, F_OK) != 0)
        return error_set(err, ERROR_NOT_FOUND, "there is no ledger in %s", folder);
    AUTO_DEPLOYMENT deployment = {.id = ""};
    AUTO_KEY key;
    uint64_t count = 0, seq = 0;
    uint8_t hash[AUDIT_HASH_BYTES];
    char hash_text[2 * AUDIT_HASH_BYTES + 1];
    if (!deployment_open(&deployment, state, err))
        return false;
    AUTO(kv) *kv = kv_lmdb_open(folder, MAP_BYTES, err);
    key_derive(&key, &deployment.master, "parley/audit/1");
    if (kv == NULL || !audit_verify(kv, &key, &count, err) || !audit_head(kv, &seq, hash, err))
        return false;
    text_hex(hash_text, hash, sizeof hash);
    printf("%" PRIu64 " records hold, head %" PRIu64 " %s\n", count, seq, hash_text);
    return true;
}

int audit_main(int argc, char *argv[])
{
    struct error err = {0};
    if (argc < 1 || !text_equal(argv[0], "verify") || (argc == 2 && text_equal(argv[1], "--help"))) {
        bool asked = argc > 0 && text_equal(argv[argc - 1], "--help");
        fputs(HELP, asked ? stdout : stderr);
        return asked ? 0 : 2;
    }
    umask(0077);
    keys_start();
    if (verify(argc - 1, argv + 1, &err))
        return 0;
    fprintf(stderr, "parley-negotiator audit verify: %s\n", err.message);
    return err.kind == ERROR_INVALID ? 2 : 1;
}
