# Writes the lab's pages into the folder $1, in well under a second: NkB and NMB (1024-based) as
#   .bin  random; does not compress (10 MB repeat in 100 MB: no HTTP coding has such a window)
#   .txt  words, the same bytes every time; gzip -6 makes 28 % of it. A block of 64 kB repeats,
#         twice gzip's window, so that repetition does not help it.
set -eu
cd "$1"

# A multiplicative congruential generator (16807, 2^31 - 1) picks the words; products stay below 2^53.
awk 'BEGIN {
    n = split("accept address backend balance buffer cache client close connection cookie default header host ingress keep latency listen location method network number offset packet page proxy queue rate reload request response retry route sample server session socket status stream tail thread timeout token tunnel upstream value window worker zone", word, " ")
    seed = 1
    while (bytes < 65536) {
        seed = (seed * 16807) % 2147483647
        text = word[1 + seed % n] " " seed % 1000 ((seed % 11) ? " " : "\n")
        bytes += length(text)
        printf "%s", text
    }
}' | head -c 65536 >64kB.txt
head -c 10485760 /dev/urandom >10MB.bin

repeat() { # FILE TIMES
    i=0
    while [ "$i" -lt "$2" ]; do
        cat "$1"
        i=$((i + 1))
    done
}

repeat 64kB.txt 16 >1MB.txt
repeat 1MB.txt 10 >10MB.txt
repeat 10MB.txt 10 >100MB.txt
repeat 10MB.bin 10 >100MB.bin
head -c 1048576 10MB.bin >1MB.bin
head -c 65536 10MB.bin >64kB.bin
for kb in 1 2 4 8 16; do
    for kind in bin txt; do
        head -c $((kb * 1024)) "64kB.$kind" >"${kb}kB.$kind"
    done
done
