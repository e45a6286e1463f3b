/* Marks for programs that `hitm cc` compiles. Natively they do nothing. */
#ifndef HITM_H
#define HITM_H

#ifdef __cplusplus
extern "C" {
#endif

/* The measured stretch begins: what came before is not counted. */
void hitm_begin(void);

/* The measured stretch ends: what comes after is not counted. There is one stretch: later marks have
   no effect. */
void hitm_end(void);

#ifdef __cplusplus
}
#endif

#endif
