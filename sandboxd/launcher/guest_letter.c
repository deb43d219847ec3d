/* guest_letter.c - what a guest is told of the sandbox that it is to serve. */
#include "sandboxd/launcher/sandboxes_internal.h"

#include "sandboxd/launcher_guest/letter.h"
#include "shared/base/text.h"

#include <string.h>

/* A later one of a name stands for the earlier. */
static bool add_env(char to[static ENV_BYTES], const char *from, const char *over, struct error *err)
{
    for (const char *text = from; *text; text += strlen(text) + 1) {
        char name[ENV_BYTES];
        size_t length = strcspn(text, "=");
        bool is_covered = false;
        for (const char *other = over; *other; other += strlen(other) + 1)
            is_covered = is_covered || (strncmp(other, text, length) == 0 && other[length] == '=');
        memcpy(name, text, length);
        name[length] = '\0';
        if (!is_covered && !env_add(to, name, text + length + 1, err))
            return false;
    }
    return true;
}

void guest_letter_done(char *const *letter)
{
    if (*letter)
        explicit_bzero(*letter, strlen(*letter));
    free(*letter);
}

/* No deadline: the keeper has it, and it may be moved. */
char *guest_letter_make(const struct sandboxes *all, const struct sandbox *sandbox, struct error *err)
{
    const struct record *record = &sandbox->record;
    const struct identity *identity = all->house.identity;
    static const char none[ENV_BYTES] = "";
    AUTO_LETTER letter;
    letter_init(&letter);
    if (!identity) {
        error_set(err, ERROR_INTERNAL, "this node has no key to make a guest's letter of");
        return NULL;
    }
    memcpy(letter.sandbox, record->id, sizeof letter.sandbox);
    memcpy(letter.issuer, identity->deployment, sizeof letter.issuer);
    memcpy(letter.isolation, record->isolation, sizeof letter.isolation);
    memcpy(letter.hostname, record->hostname, sizeof letter.hostname);
    memcpy(letter.template_name, record->template_name, sizeof letter.template_name);
    key_sandbox_root(&letter.root, &identity->node_key, record->id);
    key_guest_root(&letter.root, &letter.root); /* who takes the guest over opens nothing outside by it */
    letter.epoch = record->epoch;
    letter.uid = record->uid;
    letter.gid = record->gid;
    letter.open_files = record->limits.open_files;
    letter.commands = record->limits.commands;
    letter.output_bytes = record->limits.output_bytes;
    const struct template_record *template = sandbox->template ? &sandbox->template->facts.record : NULL;
    if (template)
        memcpy(letter.workdir, template->workdir, sizeof letter.workdir);
    if ((template && !add_env(letter.env, template->env, record->env, err)) ||
        !add_env(letter.env, record->env, none, err))
        return NULL;
    return letter_format(&letter, err);
}
