#include "sandboxd/guest/facts.h"

#include "sandboxd/guest/house.h"
#include "shared/base/clock.h"
#include "shared/base/text.h"

#include <string.h>
#include <sys/utsname.h>

static const int64_t NEVER_MS = INT64_C(10) * 365 * 86400 * 1000;

int64_t facts_deadline_ms(const struct letter *letter)
{
    return letter->expires_s ? letter->expires_s * 1000 : clock_wall_ms() + NEVER_MS;
}

void facts_identity(struct front_launcher_message *message, const struct letter *letter, uint64_t incarnation)
{
    *message = (struct front_launcher_message){.type = FL_IDENTITY};
    struct fl_identity *identity = &message->as.identity;
    strcpy(identity->node, "guest");
    strcpy(identity->storage, "guest");
    memcpy(identity->issuer, letter->issuer, sizeof identity->issuer);
    identity->incarnation = incarnation;
    identity->slots_max = 1;
    key_random(&identity->link_to_node);
    key_random(&identity->link_from_node);
}

/* The letter's, or the machine's as far as a message carries it. */
static void name_host(char to[static FRONT_LAUNCHER_NAME_BYTES], const char *wanted)
{
    struct utsname machine;
    size_t length = 0;
    if (wanted[0] || uname(&machine) != 0) {
        (void)!text_copy(to, FRONT_LAUNCHER_NAME_BYTES, wanted[0] ? wanted : "guest");
        return;
    }
    for (const char *c = machine.nodename; *c && length < FRONT_LAUNCHER_NAME_BYTES - 1; c++) {
        char small = *c >= 'A' && *c <= 'Z' ? (char)(*c + ('a' - 'A')) : *c;
        bool fits = (small >= 'a' && small <= 'z') || (small >= '0' && small <= '9');
        to[length++] = fits ? small : '-';
    }
    if (length == 0)
        strcpy(to, "guest");
}

void facts_sandbox(struct front_launcher_message *message, const struct letter *letter, pid_t init)
{
    *message = (struct front_launcher_message){.type = FL_SANDBOX};
    struct fl_sandbox *sandbox = &message->as.sandbox;
    memcpy(sandbox->id, letter->sandbox, sizeof sandbox->id);
    memcpy(sandbox->isolation, letter->isolation, sizeof sandbox->isolation);
    memcpy(sandbox->workdir, letter->workdir, sizeof sandbox->workdir);
    memcpy(sandbox->env, letter->env, sizeof sandbox->env);
    name_host(sandbox->hostname, letter->hostname);
    (void)!text_copy(sandbox->template_name, sizeof sandbox->template_name,
                     letter->template_name[0] ? letter->template_name : "guest");
    strcpy(sandbox->storage, "guest");
    strcpy(sandbox->socket_path, GUEST_SOCKET);
    sandbox->limits = (struct fl_limits){
        .open_files = letter->open_files, .commands = letter->commands, .output_bytes = letter->output_bytes};
    sandbox->uid_base = FRONT_LAUNCHER_ANY_UID;
    sandbox->init_pid = init;
    sandbox->created_wall_ms = clock_wall_ms();
    sandbox->deadline_wall_ms = facts_deadline_ms(letter);
    sandbox->root = letter->root;
    sandbox->epoch = letter->epoch;
    sandbox->uid = letter->uid;
    sandbox->gid = letter->gid;
}
