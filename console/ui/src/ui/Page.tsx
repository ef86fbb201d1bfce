import { type ReactNode, useEffect } from "react";
import { StaleBanner } from "./StaleBanner";
import classes from "./ui.module.css";

interface PageProps {
  /** The screen's name; the tab is titled "Mesh · demo · Loadmaster". */
  title: string;
  run?: string;
  /** One line of what is looked at: state, window, counts. */
  lead?: ReactNode;
  /** Buttons and filters, right of the title. */
  actions?: ReactNode;
  /** Uses the whole width and height: graphs, heat maps, editors. */
  isWide?: boolean;
  children: ReactNode;
}

export function Page({ title, run, lead, actions, isWide = false, children }: PageProps) {
  useEffect(() => {
    document.title = [title, run, "Loadmaster"].filter(Boolean).join(" · ");
  }, [title, run]);
  return (
    <div className={classes.page} data-wide={isWide || undefined}>
      <StaleBanner />
      <header className={classes.pageHead}>
        <div>
          <h1 className={classes.title}>{title}</h1>
          {lead && <div className={classes.lead}>{lead}</div>}
        </div>
        {actions && <div className={classes.actions}>{actions}</div>}
      </header>
      {children}
    </div>
  );
}

/** A titled part of a page. */
export function Panel({
  title,
  aside,
  children,
  className,
}: {
  title: string;
  aside?: ReactNode;
  children: ReactNode;
  className?: string;
}) {
  return (
    <section className={`${classes.panel} ${className ?? ""}`} aria-label={title}>
      <div className={classes.panelHead}>
        <h2 className={classes.panelTitle}>{title}</h2>
        {aside && <div className={classes.panelAside}>{aside}</div>}
      </div>
      {children}
    </section>
  );
}
