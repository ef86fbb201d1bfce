import { Button, Skeleton } from "@mantine/core";
import type { ReactNode } from "react";
import { Icon } from "./icons";
import classes from "./ui.module.css";

export interface Column<Row> {
  key: string;
  title: string;
  cell: (row: Row) => ReactNode;
  /** Numbers stand right, so that digits align. */
  isNumber?: boolean;
  /** Can be sorted by; `onSort` gets the key. */
  isSortable?: boolean;
  width?: string;
}

interface DataTableProps<Row> {
  /** What the table holds; read by screen readers. */
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  rowKey: (row: Row) => string | number;
  sort?: { key: string; isDescending: boolean };
  onSort?: (key: string) => void;
  isLoading?: boolean;
  /** Rows to hold the place of while loading. */
  expectedRows?: number;
  /** Reads the next page; none where there is no more. */
  onMore?: () => void;
  isLoadingMore?: boolean;
  empty?: ReactNode;
  isSelected?: (row: Row) => boolean;
  maxHeight?: string;
}

export function DataTable<Row>(props: DataTableProps<Row>) {
  const { caption, columns, rows, rowKey, isLoading = false, empty, isSelected, maxHeight } = props;
  if (!isLoading && rows.length === 0 && empty) return <>{empty}</>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
    <section className={classes.tableBox} style={{ maxHeight }} aria-label={caption} tabIndex={0}>
      <table className={classes.table} aria-busy={isLoading}>
        <caption className="lm-sr">{caption}</caption>
        <Head {...props} />
        <tbody>
          {isLoading && rows.length === 0 ? (
            <Waiting columns={columns.length} rows={props.expectedRows ?? 6} />
          ) : (
            rows.map((row) => (
              <tr key={rowKey(row)} data-selected={isSelected?.(row) || undefined}>
                {columns.map((column) => (
                  <td key={column.key} data-number={column.isNumber || undefined}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            ))
          )}
        </tbody>
      </table>
      {props.onMore && (
        <div className={classes.more}>
          <Button variant="subtle" onClick={props.onMore} loading={props.isLoadingMore}>
            Show more
          </Button>
        </div>
      )}
    </section>
  );
}

function Head<Row>({ columns, sort, onSort }: DataTableProps<Row>) {
  return (
    <thead>
      <tr>
        {columns.map((column) => (
          <th
            key={column.key}
            scope="col"
            style={{ width: column.width }}
            data-number={column.isNumber || undefined}
            aria-sort={sort?.key === column.key ? (sort.isDescending ? "descending" : "ascending") : undefined}
          >
            {column.isSortable && onSort ? (
              <button type="button" className={classes.sort} onClick={() => onSort(column.key)}>
                {column.title}
                {sort?.key === column.key && <Icon name={sort.isDescending ? "chevron" : "up"} size={12} />}
              </button>
            ) : (
              column.title
            )}
          </th>
        ))}
      </tr>
    </thead>
  );
}

function Waiting({ columns, rows }: { columns: number; rows: number }) {
  const keys = Array.from({ length: rows }, (_, index) => `waiting-${index}`);
  return keys.map((key) => (
    <tr key={key}>
      <td colSpan={columns}>
        <Skeleton height={14} />
      </td>
    </tr>
  ));
}
