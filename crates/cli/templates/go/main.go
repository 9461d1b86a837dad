// Answers one request: standard input is its body, the environment says the rest, standard output is the answer.
package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"strings"
)

func main() {
	log.SetFlags(0)
	body, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatalf("cannot read the request's body: %v", err)
	}
	name := strings.TrimSpace(string(body))
	if name == "" {
		name = "world"
	}

	fmt.Printf("Hello, %s!\n", name)
	fmt.Printf("You sent %s with the query %q and %d bytes.\n",
		os.Getenv("REQUEST_METHOD"), os.Getenv("QUERY_STRING"), len(body))
	// Standard error is the log.
	log.Printf("greeted %s", name)
}
