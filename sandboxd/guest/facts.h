/** facts.h - what a guest's front is told: who its node is, and its one sandbox. */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"
#include "sandboxd/launcher_guest/letter.h"

/** The hard deadline in UTC ms; a time that does not come when the letter has none. */
int64_t facts_deadline_ms(const struct letter *letter) MUST_USE;

/** FL_IDENTITY. The link's keys are random: nobody has the other end. */
void facts_identity(struct front_launcher_message *message, const struct letter *letter, uint64_t incarnation);

/** FL_SANDBOX. */
void facts_sandbox(struct front_launcher_message *message, const struct letter *letter, pid_t init);
