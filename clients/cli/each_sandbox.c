#include "clients/cli/each_sandbox.h"

static bool act_on(const struct place *place, const char *given, const struct each_sandbox *each, json_t *list,
                   struct error *err)
{
    AUTO_FREE char *id = cli_sandbox(place, given, each->thread, err);
    json_t *sandbox = NULL;
    if (!id || !each->act(place, id, each->cookie, &sandbox, err))
        return false;
    json_array_append_new(list, sandbox);
    return true;
}

static void print(const json_t *list, const struct each_sandbox *each)
{
    size_t index;
    json_t *sandbox;
    json_array_foreach (list, index, sandbox)
        each->print(sandbox);
}

int each_sandbox(const struct cli_common *common, char *const words[], const struct each_sandbox *each)
{
    AUTO_PLACE place = {0};
    if (!cli_place(&place, common))
        return CLI_FAILED;
    int status = CLI_OK;
    json_t *list = json_array();
    do { /* once without any word */
        struct error err = {0};
        if (!act_on(&place, *words, each, list, &err))
            status = cli_fail_usual(&err, CLI_FAILED);
    } while (*words && *++words);
    if (!common->json)
        print(list, each);
    else if (status == CLI_OK) /* else the first failure was the one value */
        cli_print_json(json_incref(list));
    json_decref(list);
    return status;
}
