/* closing.c - one is closed: what was frozen is issued again; what it paused goes on when that is asked for. */
#include "negotiator/leasing/incidents/incidents_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

static bool may_close(struct incident_question *q, const struct incident *incident)
{
    if (incident->row == NULL)
        return error_set(&q->refusal, ERROR_NOT_FOUND, "no incident %s", q->id);
    if (!incident_is(incident->row, "state", "open"))
        return error_set(&q->refusal, ERROR_CONFLICT, "incident %s is closed already", q->id);
    return incident_is(incident->row, "step", "done") ||
           error_set(&q->refusal, ERROR_STARTING, "incident %s is still at its step %s; ask again", q->id,
                     incident_text(incident->row, "step"));
}

bool incident_close(struct work *work, struct incident_question *q)
{
    AUTO_INCIDENT incident = {.revision = 0};
    size_t i;
    const json_t *each;
    if (!incident_get(work, q->id, &incident) || !may_close(q, &incident))
        return false;
    json_array_foreach (json_object_get(incident.row, "frozen"), i, each)
        freeze_lift(work, json_string_value(each), incident.id);
    json_object_set_new(incident.row, "state", json_string("closed"));
    json_object_set_new(incident.row, "step", json_string("resume"));
    json_object_set_new(incident.row, "cursor", json_string(""));
    json_object_set_new(incident.row, "resume", json_boolean(q->resume));
    json_object_set_new(incident.row, "note", json_string(q->text));
    json_object_set_new(incident.row, "closed_at", json_integer(work->now));
    json_object_set_new(incident.row, "closed_by", json_string(q->caller.principal.name));
    incident_put(work, &incident);
    q->answer = json_incref(incident.row);
    AUTO_FREE char *detail = memory_printf("%s resume=%d: %s", q->id, q->resume, q->text);
    return incident_audit(work, &q->caller, "incident.close", "", NULL, detail);
}
