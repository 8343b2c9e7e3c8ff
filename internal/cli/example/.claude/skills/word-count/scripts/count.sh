#!/bin/sh
# Prints how many words the first argument has.
set -f
set -- $1
echo $#
