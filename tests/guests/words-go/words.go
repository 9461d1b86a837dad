// The pure function of sdk/c/examples/words.c in Go, which knows its sets as files.
package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
)

func fail(code int, what any) {
	fmt.Fprintln(os.Stderr, what)
	os.Exit(code)
}

func give(set, item string, data []byte) {
	if err := os.WriteFile(filepath.Join("/out", set, item), data, 0o600); err != nil {
		fail(3, err)
	}
}

func isLetter(letter byte) bool {
	return letter >= 'a' && letter <= 'z' || letter >= 'A' && letter <= 'Z' || letter >= 0x80
}

func count(text []byte) []byte {
	words := map[string]int{}
	for begin := 0; begin < len(text); {
		end := begin
		for end < len(text) && isLetter(text[end]) {
			end++
		}
		if end > begin {
			words[string(text[begin:end])]++
		}
		begin = end + 1
	}
	var lines bytes.Buffer
	for _, word := range slices.Sorted(maps.Keys(words)) {
		fmt.Fprintf(&lines, "%s %d\n", word, words[word])
	}
	return lines.Bytes()
}

func numbers(bytes []byte) []float64 {
	all := make([]float64, len(bytes)/8)
	for at := range all {
		all[at] = math.Float64frombits(binary.LittleEndian.Uint64(bytes[8*at:]))
	}
	return all
}

func multiply(left, right []byte) []byte {
	size := int(math.Sqrt(float64(len(left) / 8)))
	if size*size*8 != len(left) || len(right) != len(left) {
		fail(4, "these are no matrices of one size")
	}
	a, b := numbers(left), numbers(right)
	product := make([]byte, 0, len(left))
	for i := range size {
		for j := range size {
			sum := 0.0
			for k := range size {
				// The product by itself is rounded, too: WebAssembly has no other.
				sum += float64(a[i*size+k] * b[k*size+j])
			}
			product = binary.LittleEndian.AppendUint64(product, math.Float64bits(sum))
		}
	}
	return product
}

func main() {
	texts, err := os.ReadDir("/in/texts")
	if err != nil {
		fail(2, err)
	}
	for _, text := range texts {
		data, err := os.ReadFile(filepath.Join("/in/texts", text.Name()))
		if err != nil {
			fail(2, err)
		}
		give("counts", text.Name(), count(data))
	}
	left, noLeft := os.ReadFile("/in/matrices/a")
	right, noRight := os.ReadFile("/in/matrices/b")
	switch {
	case noLeft != nil && noRight != nil:
	case noLeft != nil || noRight != nil:
		fail(5, "one matrix has no other")
	default:
		give("product", "c", multiply(left, right))
	}
}
