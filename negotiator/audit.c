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

static const char HELP[] =
    "usage: parley-negotiator audit verify [--state DIR] [--head SEQ:HASH]\n\n"
    "Proves that no record inside the audit chain was changed or removed, nor a seal of those that went with their "
    "time,\n"
    "and prints its head. --head: one that was kept elsewhere (the log has it every hour): proves the tail too.\n"
    "The negotiator must not run; of a running one ask `parley audit verify`.\n\n";

struct audit_settings {
    char *state, *head;
};

static const struct config_row ROWS[] = {
    {"state", CONFIG_TEXT, offsetof(struct audit_settings, state), NULL, 0, 0, "folder of all state"},
    {"head", CONFIG_TEXT, offsetof(struct audit_settings, head), NULL, 0, 0, "SEQ:HASH, a head that was kept"}};

enum { MAP_BYTES = 1 << 30, ROW_COUNT = sizeof ROWS / sizeof *ROWS };

static void settings_cleanup(struct audit_settings *settings)
{
    config_done(settings, ROWS, ROW_COUNT);
}

/* "12:0a1b..." */
static bool parse_head(const char *text, struct audit_position *head, struct error *err)
{
    size_t digits = strcspn(text, ":");
    const char *hash = text + digits;
    if (text_parse_u64(text, digits, INT64_MAX, &head->seq) && *hash == ':' &&
        text_hex_decode(head->hash, AUDIT_HASH_BYTES, hash + 1, strlen(hash + 1)))
        return true;
    return error_set(err, ERROR_INVALID, "--head must be a number, a colon and %d hex digits", 2 * AUDIT_HASH_BYTES);
}

static bool prove(struct kv *kv, const struct key *key, const struct audit_position *kept, struct error *err)
{
    struct audit_proof proof = {.key = key};
    char hash[2 * AUDIT_HASH_BYTES + 1];
    if (!audit_prove(kv, &proof, 0, err))
        return false;
    if (!proof.whole)
        return error_set(err, proof.flaw.kind, "%s", proof.flaw.message);
    if (kept && !audit_verify_head(kv, kept->seq, kept->hash, err))
        return false;
    text_hex(hash, proof.last.hash, AUDIT_HASH_BYTES);
    (void)printf("%" PRIu64 " records hold", proof.records);
    if (proof.sealed.last > 0)
        (void)printf(" after %" PRIu64 " sealed ones", proof.sealed.last);
    (void)printf(", head %" PRIu64 " %s%s\n", proof.last.seq, hash,
                 kept ? ", the one that was kept is part of it" : "");
    return true;
}

static bool verify(int argc, char *argv[], struct error *err)
{
    __attribute__((cleanup(settings_cleanup))) struct audit_settings settings = {0};
    AUTO_FREE char *state = config_state_folder(argc, argv);
    AUTO_FREE char *folder = deployment_ledger_folder(state);
    AUTO_DEPLOYMENT deployment = {.id = ""};
    AUTO_KEY key;
    struct audit_position kept;
    if (!config_load(&settings, ROWS, ROW_COUNT, NULL, NULL, argc, argv, err) ||
        (settings.head && !parse_head(settings.head, &kept, err)))
        return false;
    if (access(folder, F_OK) != 0)
        return error_set(err, ERROR_NOT_FOUND, "there is no ledger in %s", folder);
    if (!deployment_open(&deployment, state, err))
        return false;
    AUTO(kv) *kv = kv_lmdb_open(folder, MAP_BYTES, err);
    key_derive(&key, &deployment.master, "parley/audit/1");
    return kv && prove(kv, &key, settings.head ? &kept : NULL, err);
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
