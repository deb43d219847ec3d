/** interrupt.h - for a system call that must not wait, on a descriptor that somebody hostile can have it wait on:
 * interrupts this thread after INTERRUPT_MS. The signal is a real-time one of this process, sent by a timer to the
 * thread alone. */
#pragma once

#include <stdbool.h>

#define INTERRUPT_MS 50

/** From now on, until interrupt_disarm, calls that wait fail with EINTR (or do a part) after INTERRUPT_MS. Where no
 * timer can be made, nothing happens. */
void interrupt_arm(void);
/** Whether it fired; that may also be a thread that got no processor for so long. */
bool interrupt_disarm(void);
