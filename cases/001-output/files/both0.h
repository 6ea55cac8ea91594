#ifndef BOTH0
#define BOTH0
inline int s0 = 3;
#endif
