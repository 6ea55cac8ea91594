extern "C" int printf(const char*, ...); extern "C" int fflush(void*);
extern "C" int entry(int, int);
int main() { for (int i = 0, v; (v = entry(i, 7)) != -99; i++) { printf("%d\n", v); fflush(0); } return 0; }

