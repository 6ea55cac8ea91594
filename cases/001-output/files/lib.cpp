#include "both0.h"
extern "C" {
int f0(int);
int entry(int which, int x);
}
int entry(int which, int x) {
  switch (which) {
    case 0: return f0(x);
    case 1: return s0++;
  }
  return -99;
}
