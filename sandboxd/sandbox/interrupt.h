/** interrupt.h - for a system call that must not wait, on a descriptor that somebody hostile can have it wait on:
 * interrupts this thread after INTERRUPT_MS. For terminals: they know O_NONBLOCK of the open file alone, which its
 * other holder (a sandbox's init) can take away between any look and the call; neither SPLICE_F_NONBLOCK nor RWF_NOWAIT
 * holds for them. The signal is a real-time one of this process, sent by a timer to the thread alone, and only between
 * arm and disarm: one that is under way is delivered before disarm returns, so no other call of any library sees an
 * EINTR. */
#pragma once

#include <stdbool.h>

#define INTERRUPT_MS 50

/** From now on, until interrupt_disarm, calls that wait fail with EINTR (or do a part) after INTERRUPT_MS. Where no
 * timer can be made, nothing happens. */
void interrupt_arm(void);
/** Whether the time was up; that may also be a thread that got no processor for so long. */
bool interrupt_disarm(void);
