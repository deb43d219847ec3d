/** webhook_row.h - what the rules about webhooks share. Private to this folder. */
#pragma once

#include "negotiator/leasing/events/webhook.h"
#include "negotiator/leasing/leasing_internal.h"

/** Reads a row; what `webhook` held goes. ERROR_INTERNAL when it is damaged. */
bool webhook_parse(struct webhook *webhook, const char *id, const struct kv_value *value, struct error *err) MUST_USE;

/** Adds it to the change, with the expectation of its revision. */
void webhook_put(struct work *work, const struct webhook *webhook);
