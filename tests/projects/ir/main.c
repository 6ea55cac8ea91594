int add3(int), twice(int), chain(int), other_name(int), quiet(int), data(int), initialized(int);

int helper(int x) { return x * 100; }

int call(const char* name, int x) {
    switch (name[0]) {
        case 'a':
            return add3(x);
        case 't':
            return twice(x);
        case 'c':
            return chain(x);
        case 'o':
            return other_name(x);
        case 'q':
            return quiet(x);
        case 'd':
            return data(x);
        case 'i':
            return initialized(x);
    }
    return -1;
}
