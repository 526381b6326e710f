// Where Sarama's own partitioners send records, as text.
//
//	mkdir sarama && cp golden_partitions.go sarama/main.go && cd sarama
//	go mod init golden && go get github.com/IBM/sarama@v1.46.3 && go run . > ../sarama-1.46.3.txt
//
// For each partitioner and number of partitions: SHA-256 of the partition of every key (golden_keys.py has the same keys), 32 bits
// each, little-endian; the first ones.
package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/IBM/sarama"
)

const keyCount, shown = 12000, 20

func keys() [][]byte {
	all := make([][]byte, keyCount)
	var at uint64
	for k := range all {
		length := k % 301
		if k%300 == 299 {
			length = 1000 + k
		}
		all[k] = make([]byte, length)
		for i := range all[k] {
			at++
			x := at * 0x9E3779B97F4A7C15
			all[k][i] = byte((x ^ x>>32) * 0xD6E8FEB86659FD93 >> 56)
		}
	}
	return all
}

func main() {
	constructors := []struct {
		name string
		make sarama.PartitionerConstructor
	}{
		{"hash", sarama.NewHashPartitioner},
		{"reference_hash", sarama.NewReferenceHashPartitioner},
		{"consistent_crc", sarama.NewConsistentCRCHashPartitioner},
	}
	all := keys()
	for _, constructor := range constructors {
		for _, count := range []int32{1, 2, 3, 8, 200, 1000} {
			partitioner := constructor.make("t")
			var packed []byte
			var first []string
			for _, key := range all {
				partition, err := partitioner.Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, count)
				if err != nil {
					panic(err)
				}
				packed = binary.LittleEndian.AppendUint32(packed, uint32(partition))
				if len(first) < shown {
					first = append(first, fmt.Sprint(partition))
				}
			}
			fmt.Printf("%s %d %x %s\n", constructor.name, count, sha256.Sum256(packed), strings.Join(first, ","))
		}
	}
}
