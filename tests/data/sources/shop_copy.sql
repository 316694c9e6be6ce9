--
-- PostgreSQL database dump
--

\restrict OerRWi0VAE1SQ6IRMhogla3wDPPgpo4uFESUXMNarexGb214JsAj9P5iEK8cjEE

-- Dumped from database version 15.18
-- Dumped by pg_dump version 15.18

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: sales; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA sales;


--
-- Name: mood; Type: TYPE; Schema: public; Owner: -
--

CREATE TYPE public.mood AS ENUM (
    'happy',
    'sad'
);


--
-- Name: year; Type: DOMAIN; Schema: public; Owner: -
--

CREATE DOMAIN public.year AS integer
	CONSTRAINT y CHECK ((VALUE > 1900));


--
-- Name: f(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.f() RETURNS integer
    LANGUAGE plpgsql
    AS $$ BEGIN RETURN 1; -- ; '
END; $$;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: customer; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.customer (
    id integer NOT NULL,
    name character varying(80) NOT NULL,
    mood public.mood,
    active boolean DEFAULT true,
    born date,
    joined timestamp with time zone,
    born_year public.year,
    note text,
    photo bytea,
    tags text[],
    "Odd Name" numeric(10,2),
    code numeric(12,0),
    ratio double precision
);


--
-- Name: TABLE customer; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON TABLE public.customer IS 'it''s; a comment';


--
-- Name: customer_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.customer_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: customer_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.customer_id_seq OWNED BY public.customer.id;


--
-- Name: empty_table; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.empty_table (
    x integer NOT NULL,
    y text NOT NULL
);


--
-- Name: happy; Type: VIEW; Schema: public; Owner: -
--

CREATE VIEW public.happy AS
 SELECT customer.id,
    customer.name,
    customer.mood,
    customer.active,
    customer.born,
    customer.joined,
    customer.born_year,
    customer.note,
    customer.photo,
    customer.tags,
    customer."Odd Name",
    customer.code,
    customer.ratio
   FROM public.customer
  WHERE (customer.mood = 'happy'::public.mood);


--
-- Name: log; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.log (
    id integer,
    at date NOT NULL
)
PARTITION BY RANGE (at);


--
-- Name: log_2023; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.log_2023 (
    id integer,
    at date NOT NULL
);


--
-- Name: log_2024; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.log_2024 (
    id integer,
    at date NOT NULL
);


--
-- Name: orders; Type: TABLE; Schema: sales; Owner: -
--

CREATE TABLE sales.orders (
    id bigint NOT NULL,
    customer_id integer,
    placed timestamp without time zone NOT NULL,
    price numeric NOT NULL,
    qty integer DEFAULT 1,
    total numeric GENERATED ALWAYS AS ((price * (qty)::numeric)) STORED
);


--
-- Name: orders_id_seq; Type: SEQUENCE; Schema: sales; Owner: -
--

ALTER TABLE sales.orders ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sales.orders_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: log_2023; Type: TABLE ATTACH; Schema: public; Owner: -
--

ALTER TABLE ONLY public.log ATTACH PARTITION public.log_2023 FOR VALUES FROM ('2023-01-01') TO ('2024-01-01');


--
-- Name: log_2024; Type: TABLE ATTACH; Schema: public; Owner: -
--

ALTER TABLE ONLY public.log ATTACH PARTITION public.log_2024 FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');


--
-- Name: customer id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.customer ALTER COLUMN id SET DEFAULT nextval('public.customer_id_seq'::regclass);


--
-- Data for Name: customer; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.customer (id, name, mood, active, born, joined, born_year, note, photo, tags, "Odd Name", code, ratio) FROM stdin;
1	Ann	happy	t	1990-05-01	2024-01-02 03:04:05+00	1990	two\nlines\tand a tab \\ backslash; semicolon	\\xdeadbeef	{a,"b c"}	12.50	123456789012	1.5
2	Bo'b; O"x	sad	f	\N	2024-06-02 03:04:05.25+00	\N		\N	\N	\N	\N	NaN
3	Éva	\N	\N	2001-12-31	\N	2001	\\N	\N	{}	-0.01	7	-2.5
\.


--
-- Data for Name: empty_table; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.empty_table (x, y) FROM stdin;
\.


--
-- Data for Name: log_2023; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.log_2023 (id, at) FROM stdin;
1	2023-06-01
\.


--
-- Data for Name: log_2024; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.log_2024 (id, at) FROM stdin;
2	2024-06-01
3	2024-07-01
\.


--
-- Data for Name: orders; Type: TABLE DATA; Schema: sales; Owner: -
--

COPY sales.orders (id, customer_id, placed, price, qty) FROM stdin;
1	2	2024-01-01 01:00:00	1.25	2
2	3	2024-01-01 02:00:00	2.50	3
3	1	2024-01-01 03:00:00	3.75	4
4	2	2024-01-01 04:00:00	5.00	1
5	3	2024-01-01 05:00:00	6.25	2
6	1	2024-01-01 06:00:00	7.50	3
7	2	2024-01-01 07:00:00	8.75	4
8	3	2024-01-01 08:00:00	10.00	1
9	1	2024-01-01 09:00:00	11.25	2
10	2	2024-01-01 10:00:00	12.50	3
\.


--
-- Name: customer_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.customer_id_seq', 3, true);


--
-- Name: orders_id_seq; Type: SEQUENCE SET; Schema: sales; Owner: -
--

SELECT pg_catalog.setval('sales.orders_id_seq', 10, true);


--
-- Name: customer customer_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.customer
    ADD CONSTRAINT customer_pkey PRIMARY KEY (id);


--
-- Name: empty_table empty_table_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.empty_table
    ADD CONSTRAINT empty_table_pkey PRIMARY KEY (x, y);


--
-- Name: orders orders_pkey; Type: CONSTRAINT; Schema: sales; Owner: -
--

ALTER TABLE ONLY sales.orders
    ADD CONSTRAINT orders_pkey PRIMARY KEY (id);


--
-- Name: orders orders_customer_id_fkey; Type: FK CONSTRAINT; Schema: sales; Owner: -
--

ALTER TABLE ONLY sales.orders
    ADD CONSTRAINT orders_customer_id_fkey FOREIGN KEY (customer_id) REFERENCES public.customer(id) ON DELETE CASCADE;


--
-- PostgreSQL database dump complete
--

\unrestrict OerRWi0VAE1SQ6IRMhogla3wDPPgpo4uFESUXMNarexGb214JsAj9P5iEK8cjEE

