package ovntest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// A Record is one transaction in a database's file, see ovsdb(5) and ovsdb(7).
type Record struct {
	// Comment is what the client said, such as "ovn-northd".
	Comment string
	// Time is when the server wrote it.
	Time time.Time
	// Rows counts the rows that it inserted, changed or deleted, by table.
	Rows map[string]int
}

// NBRecords reads all transactions of the Northbound database from its file. The
// first line of the file, the schema, is none.
func (c *Central) NBRecords() ([]Record, error) {
	f, err := os.Open(c.path("nb", ".db"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	records, err := readRecords(bufio.NewReader(f))
	if err != nil {
		return nil, fmt.Errorf("reading the records of %s: %w", f.Name(), err)
	}
	return records, nil
}

// NBTransactions counts the transactions of the Northbound database that are not
// ovn-northd's own. It is meant for differences between two moments, as long as
// the server does not compact the file, which it does at the earliest after ten
// minutes.
func (c *Central) NBTransactions() (int, error) {
	records, err := c.NBRecords()
	n := 0
	for _, r := range records {
		if r.Comment != "ovn-northd" {
			n++
		}
	}
	return n, err
}

// readRecords reads the log of a standalone database: each record is a line
// "OVSDB JSON length sha1" and so many bytes of JSON, of which the first is the
// schema.
func readRecords(r *bufio.Reader) ([]Record, error) {
	var records []Record
	for first := true; ; first = false {
		header, err := r.ReadString('\n')
		if err == io.EOF && strings.TrimSpace(header) == "" {
			return records, nil
		}
		if err != nil {
			return nil, err
		}
		var length int64
		var sum string
		if _, err := fmt.Sscanf(header, "OVSDB JSON %d %s", &length, &sum); err != nil {
			return nil, fmt.Errorf("not a standalone database's record: %q", header)
		}
		body := io.LimitReader(r, length)
		if first {
			if _, err := io.Copy(io.Discard, body); err != nil {
				return nil, err
			}
			continue
		}
		record, err := readRecord(body)
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
}

// readRecord reads one record: an object of tables, which are objects of rows.
func readRecord(r io.Reader) (Record, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return Record{}, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return Record{}, err
	}
	record := Record{Rows: map[string]int{}}
	for name, value := range members {
		switch {
		case name == "_comment":
			err = json.Unmarshal(value, &record.Comment)
		case name == "_date":
			var ms int64
			err = json.Unmarshal(value, &ms)
			record.Time = time.UnixMilli(ms)
		case !strings.HasPrefix(name, "_"):
			var rows map[string]json.RawMessage
			err = json.Unmarshal(value, &rows)
			record.Rows[name] = len(rows)
		}
		if err != nil {
			return Record{}, err
		}
	}
	return record, nil
}
