// Puts an object of 1 MiB as often as it is told, by AWS's SDK for Go, and prints how long each took and what this process used of its processor.
//
//	put ENDPOINT BUCKET BODY COUNT
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

func used() (user, kernel float64) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	seconds := func(time syscall.Timeval) float64 { return float64(time.Sec) + float64(time.Usec)/1e6 }
	return seconds(usage.Utime), seconds(usage.Stime)
}

func main() {
	endpoint, bucket := os.Args[1], os.Args[2]
	body, err := os.ReadFile(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	count, err := strconv.Atoi(os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	client := s3.New(s3.Options{
		BaseEndpoint: aws.String(endpoint),
		Region:       "us-east-1",
		UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(
			os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), ""),
	})
	put := func() {
		input := s3.PutObjectInput{Bucket: &bucket, Key: aws.String("put"), Body: bytes.NewReader(body)}
		if _, err := client.PutObject(context.Background(), &input); err != nil {
			log.Fatal(err)
		}
	}
	for range 3 {
		put()
	}
	times := make([]float64, 0, count)
	user, kernel := used()
	for range count {
		began := time.Now()
		put()
		times = append(times, time.Since(began).Seconds())
	}
	userAfter, kernelAfter := used()
	user, kernel = (userAfter-user)/float64(count), (kernelAfter-kernel)/float64(count)
	said := map[string]any{"times": times, "cpu": user + kernel, "user": user, "kernel": kernel}
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		log.Fatal(err)
	}
}
