LIB=libp0.so
exec "$1/main_p0" "$1/libp0.so"
