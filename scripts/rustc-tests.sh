#!/bin/sh
# Runs rustc for scripts/check.sh. It optimizes the library and the program as the profile says, and leaves out the
# optimization of the tests and examples on top: they are compiled in a third of the time and run as fast, because the
# work is in the library.
case " $* " in
  *" --crate-name lockkeeper "*) exec "$@" ;;
  *) exec "$@" -C opt-level=0 ;;
esac
