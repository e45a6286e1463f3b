/* Marks for programs that `hitm cc` compiles. Natively they do nothing. */
#ifndef HITM_H
#define HITM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The measured stretch begins: what came before is not counted. */
void hitm_begin(void);

/* The measured stretch ends: what comes after is not counted. There is one stretch: later marks have
   no effect. */
void hitm_end(void);

/* Names `size` bytes of memory in the report, where its own names do not tell enough. Of several
   names of a byte the last one counts. */
void hitm_name(const void *memory, size_t size, const char *name);

#ifdef __cplusplus
}
#endif

#endif
