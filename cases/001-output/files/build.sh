CXX=g++ CC=gcc LIB=libp0.so
set -e
rm -rf out; mkdir out
$CXX -fPIC -O1 -w -c blob/f0.cpp -o out/f0.o
$CXX -fPIC -O1 -w -c lib.cpp -o out/lib.o
$CXX -shared -o out/$LIB out/*.o -Wl,--version-script,script1.map
$CXX -w main.cpp -o out/main_p0 -Lout -lp0 -Wl,-rpath,'$ORIGIN'
