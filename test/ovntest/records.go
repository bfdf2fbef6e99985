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
	// Comment is the client's comment, such as "ovn-northd".
	Comment string
	// Time is the time of the server's write.
	Time time.Time
	// Rows is the number of inserted, changed and deleted rows by table.
	Rows map[string]int
}

// NBRecords reads all transactions of the Northbound database from its file. It
// skips the first record, the schema.
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

// NBTransactions counts the transactions of the Northbound database except
// ovn-northd's. Use the difference of two calls, and no compaction of the file in
// between: the server compacts after ten minutes at the earliest.
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

// readRecords reads the log of a standalone database: each record is a line "OVSDB
// JSON length sha1" followed by length bytes of JSON. The first record is the
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

// readRecord reads one record: an object of tables; a table is an object of rows.
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
